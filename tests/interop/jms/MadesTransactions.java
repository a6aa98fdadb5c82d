// Transacted sessions of Qpid JMS on a running broker, driven by test_jms.py:
// MadesTransactions PORT FOLDER SENDER RECEIVER
// FOLDER holds SENDER.p12 and RECEIVER.p12 with their keys, and trust.p12. Prints one line per thing
// that happened. Messages carry the fields of IEC 62325-503 Tables 5 to 7; what JMS has no setter for
// (a property that is a timestamp) goes through the AMQP side of the message.

import java.util.Date;
import java.util.UUID;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.message.JmsMessage;
import org.apache.qpid.jms.message.facade.JmsMessageFacade;

public class MadesTransactions {
    private static final int COUNT = 3;

    public static void main(String[] arguments) throws Exception {
        String port = arguments[0], folder = arguments[1];
        String sender = arguments[2], receiver = arguments[3];

        Connection sending = connect(port, folder, sender);
        Session session = sending.createSession(true, Session.SESSION_TRANSACTED);
        MessageProducer producer = session.createProducer(session.createQueue(receiver));
        producer.setTimeToLive(600000);
        send(session, producer, sender, receiver, "rolled back ");
        session.rollback();
        send(session, producer, sender, receiver, "committed ");
        session.commit();
        sending.close();

        Connection receiving = connect(port, folder, receiver);
        receiving.start();
        session = receiving.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(session.createQueue(receiver));
        receive(consumer, "first");
        session.rollback();
        receive(consumer, "second");
        session.commit();
        Message left = consumer.receive(300);
        System.out.println("left " + (left == null ? "nothing" : text(left)));
        receiving.close();
        System.out.println("closed");
    }

    private static Connection connect(String port, String folder, String code) throws Exception {
        String stores = "&transport.storeType=PKCS12&transport.verifyHost=false"
            + "&transport.keyStoreLocation=" + folder + "/" + code + ".p12"
            + "&transport.keyStorePassword=changeit"
            + "&transport.trustStoreLocation=" + folder + "/trust.p12"
            + "&transport.trustStorePassword=changeit";
        return new JmsConnectionFactory(
            "amqps://127.0.0.1:" + port + "?amqp.saslMechanisms=EXTERNAL" + stores).createConnection();
    }

    private static void send(
            Session session, MessageProducer producer, String sender, String receiver, String text)
            throws Exception {
        for (int n = 0; n < COUNT; n++) {
            TextMessage message = session.createTextMessage(text + n);
            message.setJMSType("A01");
            JmsMessageFacade amqp = ((JmsMessage) message).getFacade();
            amqp.setProperty("messageID", UUID.randomUUID().toString());
            amqp.setProperty("senderCode", sender);
            amqp.setProperty("receiverCode", receiver);
            amqp.setProperty("internalType", "STANDARD_MESSAGE");
            amqp.setProperty("generated", new Date());
            amqp.setProperty("messageMversion", 2);
            producer.send(message);
        }
    }

    private static void receive(MessageConsumer consumer, String when) throws Exception {
        for (int n = 0; n < COUNT; n++) {
            Message message = consumer.receive(10000);
            System.out.println(when + " " + (message == null ? "nothing" : text(message)
                + (message.getJMSRedelivered() ? " again" : "")));
        }
    }

    private static String text(Message message) throws Exception {
        return ((TextMessage) message).getText();
    }
}
