// A transacted session of Qpid JMS, driven by test_jms.py: TransactedSession PORT FOLDER QUEUE
// Prints one line per thing that happened.

import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.qpid.jms.JmsConnectionFactory;

public class TransactedSession {
    private static final int COUNT = 3;

    public static void main(String[] arguments) throws Exception {
        String stores = "&transport.storeType=PKCS12&transport.verifyHost=false"
            + "&transport.keyStoreLocation=" + arguments[1] + "/own.p12"
            + "&transport.keyStorePassword=changeit"
            + "&transport.trustStoreLocation=" + arguments[1] + "/trust.p12"
            + "&transport.trustStorePassword=changeit";
        JmsConnectionFactory factory = new JmsConnectionFactory(
            "amqps://127.0.0.1:" + arguments[0] + "?amqp.saslMechanisms=EXTERNAL" + stores);
        Connection connection = factory.createConnection();
        connection.start();
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue queue = session.createQueue(arguments[2]);
        MessageProducer producer = session.createProducer(queue);
        send(session, producer, "rolled back ");
        session.rollback();
        send(session, producer, "committed ");
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        receive(consumer, "first");
        session.rollback();
        receive(consumer, "second");
        session.commit();
        Message left = consumer.receive(300);
        System.out.println("left " + (left == null ? "nothing" : text(left)));
        connection.close();
        System.out.println("closed");
    }

    private static void send(Session session, MessageProducer producer, String text) throws Exception {
        for (int n = 0; n < COUNT; n++) {
            producer.send(session.createTextMessage(text + n));
        }
    }

    private static void receive(MessageConsumer consumer, String when) throws Exception {
        for (int n = 0; n < COUNT; n++) {
            Message message = consumer.receive(10000);
            System.out.println(when + " " + (message == null ? "nothing" : text(message)));
        }
    }

    private static String text(Message message) throws Exception {
        return ((TextMessage) message).getText();
    }
}
