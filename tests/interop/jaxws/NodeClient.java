import eu.entsoe.mades.*;
import java.io.File;
import java.nio.file.*;
import java.util.*;
import javax.net.ssl.HttpsURLConnection;
import javax.xml.bind.JAXBContext;
import javax.xml.ws.BindingProvider;
import javax.xml.ws.soap.MTOMFeature;

/** An endpoint of MADES 1.1 on classes that wsimport made: transfers with attachments in both directions. */
public class NodeClient {
    static <T> T read(Class<T> type, String file) throws Exception {
        return type.cast(JAXBContext.newInstance(type).createUnmarshaller().unmarshal(new File(file)));
    }

    public static void main(String[] a) throws Exception {
        // Certificates of components name codes, not hosts.
        HttpsURLConnection.setDefaultHostnameVerifier((host, session) -> true);
        MadesInternalMessagingService service = new MadesInternalMessagingService(new File(a[0]).toURI().toURL());
        MTOMFeature attachments = new MTOMFeature(true);
        MadesInternalMessaging port = a[2].equals("1.1")
            ? service.getMadesInternalMessagingSOAP11(attachments) : service.getMadesInternalMessagingSOAP12(attachments);
        ((BindingProvider) port).getRequestContext().put(BindingProvider.ENDPOINT_ADDRESS_PROPERTY, a[1]);
        Path folder = Paths.get(a[3]);

        UploadMessagesRequest up = read(UploadMessagesRequest.class, folder.resolve("upload.xml").toString());
        up.getMessages().get(0).setContent(Files.readAllBytes(folder.resolve("document.bin")));
        System.out.println(String.join(",", port.uploadMessages(up).getUploadedMessages()));

        DownloadMessagesRequest down = read(DownloadMessagesRequest.class, folder.resolve("download.xml").toString());
        List<InternalMessage> found = port.downloadMessages(down).getMessages();
        Files.write(folder.resolve("downloaded.bin"), found.get(0).getContent());
        System.out.println(found.get(0).getMessageID());
    }
}
