import eu.entsoe.mades._2.*;
import java.net.URL;
import java.nio.file.*;
import java.util.*;
import javax.xml.ws.BindingProvider;
import javax.xml.ws.handler.MessageContext;
import javax.xml.ws.soap.MTOMFeature;

/** A business application on classes that wsimport made: all five services, one port of the WSDL. */
public class Application {
    static final StringBuilder out = new StringBuilder("{");

    static void tell(String name, Object value) {
        String text = value == null ? "null" : "\"" + value.toString().replace("\"", "'") + "\"";
        out.append(out.length() > 1 ? ", " : "").append("\"" + name + "\": " + text);
    }

    static MadesEndpointV2 port(String url, String version, String user, String password) throws Exception {
        MadesEndpointV2Service service = new MadesEndpointV2Service(new URL(url + "?wsdl"));
        MTOMFeature attachments = new MTOMFeature(version.endsWith("mtom"));
        MadesEndpointV2 port = version.startsWith("1.1")
            ? service.getMadesEndpointSOAP11(attachments) : service.getMadesEndpointSOAP12(attachments);
        Map<String, Object> context = ((BindingProvider) port).getRequestContext();
        context.put(BindingProvider.USERNAME_PROPERTY, user);
        context.put(BindingProvider.PASSWORD_PROPERTY, password);
        return port;
    }

    static MessageStatus until(MadesEndpointV2 port, String id, String state) throws Exception {
        CheckMessageStatusRequest request = new CheckMessageStatusRequest();
        request.setMessageID(id);
        for (int n = 0; n < 600; n++) {
            MessageStatus status = port.checkMessageStatus(request).getMessageStatus();
            if (status.getState().value().equals(state)) return status;
            Thread.sleep(50);
        }
        throw new IllegalStateException(id + " never became " + state);
    }

    public static void main(String[] a) throws Exception {
        MadesEndpointV2 sender = port(a[0], a[2], a[3], a[4]);
        MadesEndpointV2 recipient = port(a[1], a[2], a[3], a[4]);
        String type = a[5];
        ObjectFactory make = new ObjectFactory();
        SentMessage message = new SentMessage();
        message.setReceiverCode("E2");
        message.setMessageType(type);
        message.setContent(Files.readAllBytes(Paths.get(a[6])));
        message.setSenderApplication(make.createSentMessageSenderApplication("App7"));
        message.setBaMessageID(make.createSentMessageBaMessageID("4711"));
        SendMessageRequest send = new SendMessageRequest();
        send.setMessage(message);
        send.setConversationID(make.createSendMessageRequestConversationID("c-" + type));
        String id = sender.sendMessage(send).getMessageID();
        tell("sent", id);
        tell("again", sender.sendMessage(send).getMessageID());

        ConnectivityTestRequest test = new ConnectivityTestRequest();
        test.setReceiverCode("E2");
        test.setMessageType(type);
        until(sender, sender.connectivityTest(test).getMessageID(), "DELIVERED");
        tell("received before", until(sender, id, "DELIVERED").getReceiveTimestamp());

        ReceiveMessageRequest receive = new ReceiveMessageRequest();
        receive.setMessageType(type);
        receive.setDownloadMessage(false);
        ReceiveMessageResponse found = recipient.receiveMessage(receive);
        tell("waiting", found.getRemainingMessagesCount());
        tell("bare", found.getReceivedMessage().getValue().getContent().length);
        receive.setDownloadMessage(true);
        found = recipient.receiveMessage(receive);
        ReceivedMessage got = found.getReceivedMessage().getValue();
        Map<?, ?> parts = (Map<?, ?>) ((BindingProvider) recipient).getResponseContext()
            .get(MessageContext.INBOUND_MESSAGE_ATTACHMENTS);
        tell("attachments", parts == null ? 0 : parts.size());
        tell("remaining", found.getRemainingMessagesCount());
        tell("same", Arrays.equals(got.getContent(), message.getContent()));
        tell("application", got.getSenderApplication().getValue());
        tell("ba", got.getBaMessageID().getValue());
        tell("from", got.getSenderCode());
        ConfirmReceiveMessageRequest confirm = new ConfirmReceiveMessageRequest();
        confirm.setMessageID(got.getMessageID());
        tell("confirmed", recipient.confirmReceiveMessage(confirm).getMessageID());
        found = recipient.receiveMessage(receive);
        tell("left", found.getReceivedMessage() == null ? "nothing" : "something");

        MessageStatus status = until(sender, id, "RECEIVED");
        StringBuilder trace = new StringBuilder();
        for (MessageTraceItem item : status.getTrace().getTrace())
            trace.append(item.getState().value()).append("@").append(item.getComponent()).append(" ");
        tell("trace", trace.toString().trim());
        tell("received after", status.getReceiveTimestamp() != null);

        message.setReceiverCode("NOBODY");
        send.setConversationID(null);
        try { sender.sendMessage(send); }
        catch (SendMessageFault fault) {
            SendMessageError e = fault.getFaultInfo();
            tell("SendMessage", e.getErrorCode() + " " + e.getReceiverCode().getValue());
        }
        test.setReceiverCode("NOBODY");
        try { sender.connectivityTest(test); }
        catch (ConnectivityTestFault fault) {
            ConnectivityTestError e = fault.getFaultInfo();
            tell("ConnectivityTest", e.getErrorCode() + " " + e.getReceiverCode().getValue());
        }
        receive.setMessageType("A_1");
        try { recipient.receiveMessage(receive); }
        catch (ReceiveMessageFault fault) {
            ReceiveMessageError e = fault.getFaultInfo();
            tell("ReceiveMessage", e.getErrorCode() + " " + e.getMessageType().getValue());
        }
        confirm.setMessageID("nothing");
        try { recipient.confirmReceiveMessage(confirm); }
        catch (ConfirmReceiveMessageFault fault) {
            ConfirmReceiveMessageError e = fault.getFaultInfo();
            tell("ConfirmReceiveMessage", e.getErrorCode() + " " + e.getMessageID().getValue());
        }
        CheckMessageStatusRequest check = new CheckMessageStatusRequest();
        check.setMessageID("nothing");
        try { sender.checkMessageStatus(check); }
        catch (CheckMessageStatusFault fault) {
            CheckMessageStatusError e = fault.getFaultInfo();
            tell("CheckMessageStatus", e.getErrorCode() + " " + e.getMessageID().getValue());
        }
        System.out.println(out.append("}"));
    }
}
