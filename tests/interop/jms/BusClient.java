// A client of a bus on Qpid JMS, through RabbitMQ's AMQP 1.0: BusClient PORT FOLDER REQUEST EVENT
// REQUEST and EVENT are files with envelopes. Prints one line per thing that happened.

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import javax.jms.TextMessage;
import javax.jms.Topic;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;

public class BusClient {
    public static void main(String[] arguments) throws Exception {
        String stores = "&transport.storeType=PKCS12&transport.verifyHost=false"
            + "&transport.keyStoreLocation=" + arguments[1] + "/own.p12"
            + "&transport.keyStorePassword=changeit"
            + "&transport.trustStoreLocation=" + arguments[1] + "/trust.p12"
            + "&transport.trustStorePassword=changeit";
        JmsConnectionFactory factory = new JmsConnectionFactory(
            "amqps://127.0.0.1:" + arguments[0] + "?amqp.saslMechanisms=EXTERNAL" + stores);
        String request = new String(Files.readAllBytes(Paths.get(arguments[2])), StandardCharsets.UTF_8);
        String event = new String(Files.readAllBytes(Paths.get(arguments[3])), StandardCharsets.UTF_8);
        Connection connection = factory.createConnection();
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        // A wildcard: every event of the noun, whatever its verb.
        Topic events = session.createTopic("/exchange/TESTING/TESTING.EVENTS.Others.*");
        MessageConsumer all = session.createConsumer(events);
        // Lasting: a queue of the subscriber's own, which the operator bound to the topic.
        MessageConsumer lasting = session.createConsumer(session.createQueue("/amq/queue/lasting"));
        Queue requests = session.createQueue("/amq/queue/TESTING.REQUESTS.Notes.get");
        MessageProducer producer = session.createProducer(requests);
        temporary(factory.getRemoteURI());
        // A queue of our own, which the operator's policy removes when nobody uses it any more.
        Queue replies = session.createQueue("/queue/replies-" + java.util.UUID.randomUUID());
        MessageConsumer answers = session.createConsumer(replies);
        TextMessage text = session.createTextMessage(request.replace("IDENTITY", "text-1"));
        text.setJMSReplyTo(replies);
        text.setJMSCorrelationID("by-text");
        producer.send(text);
        show("text", answers.receive(30000));
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(request.replace("IDENTITY", "bytes-1").getBytes(StandardCharsets.UTF_8));
        bytes.setJMSReplyTo(replies);
        bytes.setJMSCorrelationID("by-bytes");
        producer.setTimeToLive(30000);
        producer.send(bytes);
        show("bytes", answers.receive(30000));
        MessageProducer publisher = session.createProducer(
            session.createTopic("/exchange/TESTING/TESTING.EVENTS.Others.changed"));
        publisher.send(session.createTextMessage(event));
        show("event", all.receive(30000));
        show("lasting", lasting.receive(30000));
        connection.close();
    }

    /** RabbitMQ has temporary queues (dynamic targets) since 4.1; before, it never answers. */
    private static void temporary(String uri) throws Exception {
        JmsConnection connection = (JmsConnection) new JmsConnectionFactory(uri).createConnection();
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        connection.setRequestTimeout(3000);
        try {
            session.createTemporaryQueue();
            System.out.println("temporary queue");
        } catch (JMSException refused) {
            System.out.println("temporary " + refused.getClass().getSimpleName());
        }
        connection.close();
    }

    private static void show(String what, Message message) throws Exception {
        if (message == null) {
            System.out.println(what + " nothing");
            return;
        }
        String body;
        if (message instanceof TextMessage) {
            body = ((TextMessage) message).getText();
        } else {
            BytesMessage bytes = (BytesMessage) message;
            byte[] data = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(data);
            body = new String(data, StandardCharsets.UTF_8);
        }
        boolean good = body.contains("<Result>OK</Result>") || body.contains("EventMessage");
        String id = message.getJMSCorrelationID();
        System.out.println(what + " " + (good ? "good" : body) + " " + id);
    }
}
