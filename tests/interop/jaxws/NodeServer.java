import com.sun.net.httpserver.*;
import eu.entsoe.mades.*;
import java.io.FileInputStream;
import java.net.InetSocketAddress;
import java.nio.file.*;
import java.security.KeyStore;
import java.util.concurrent.Executors;
import javax.jws.WebService;
import javax.net.ssl.*;
import javax.xml.ws.BindingType;
import javax.xml.ws.Endpoint;
import javax.xml.ws.soap.SOAPBinding;

/** The transfers of a node of MADES 1.1 on classes that wsimport made; it keeps one message. */
@WebService(endpointInterface = "eu.entsoe.mades.MadesInternalMessaging", targetNamespace = "http://mades.entsoe.eu/",
    serviceName = "MadesInternalMessagingService", portName = "MadesInternalMessagingSOAP12")
@BindingType(SOAPBinding.SOAP12HTTP_MTOM_BINDING)
public class NodeServer implements MadesInternalMessaging {
    static Path folder;
    InternalMessage kept;

    public UploadMessagesResponse uploadMessages(UploadMessagesRequest request) {
        UploadMessagesResponse answer = new UploadMessagesResponse();
        for (InternalMessage message : request.getMessages()) {
            kept = message;
            try {
                Files.write(folder.resolve("uploaded.bin"), message.getContent());
            } catch (java.io.IOException error) {
                throw new RuntimeException(error);
            }
            answer.getUploadedMessages().add(message.getMessageID());
        }
        return answer;
    }

    public DownloadMessagesResponse downloadMessages(DownloadMessagesRequest request) {
        DownloadMessagesResponse answer = new DownloadMessagesResponse();
        answer.getMessages().add(kept);
        answer.setWaitingMessages(0);
        return answer;
    }

    public ConfirmDownloadResponse confirmDownload(ConfirmDownloadRequest request) {
        return new ConfirmDownloadResponse();
    }

    static KeyStore store(String name, char[] password) throws Exception {
        KeyStore found = KeyStore.getInstance("PKCS12");
        try (FileInputStream file = new FileInputStream(folder.resolve(name).toFile())) {
            found.load(file, password);
        }
        return found;
    }

    public static void main(String[] a) throws Exception {
        folder = Paths.get(a[0]);
        char[] password = a[1].toCharArray();
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store("key.p12", password), password);
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store("roots.p12", password));
        SSLContext tls = SSLContext.getInstance("TLS");
        tls.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        HttpsServer server = HttpsServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.setHttpsConfigurator(new HttpsConfigurator(tls) {
            public void configure(HttpsParameters parameters) {
                SSLParameters wanted = tls.getDefaultSSLParameters();
                wanted.setNeedClientAuth(true);
                parameters.setSSLParameters(wanted);
            }
        });
        server.setExecutor(Executors.newCachedThreadPool());
        Endpoint.create(SOAPBinding.SOAP12HTTP_MTOM_BINDING, new NodeServer()).publish(server.createContext("/mades/1"));
        server.start();
        System.out.println(server.getAddress().getPort());
        System.in.read();
        System.exit(0);
    }
}
