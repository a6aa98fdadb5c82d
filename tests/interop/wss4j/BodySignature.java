// Signatures of SOAP bodies by Apache WSS4J: BodySignature verify FOLDER FILE...
//                                            BodySignature sign FOLDER FILE...
// FOLDER has own.p12 and trust.p12. Of each file it prints what is covered and by whom, or why it is
// refused; or it signs the file in its place.

import java.io.File;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import javax.xml.parsers.DocumentBuilderFactory;
import javax.xml.transform.TransformerFactory;
import javax.xml.transform.dom.DOMSource;
import javax.xml.transform.stream.StreamResult;
import org.apache.wss4j.common.WSEncryptionPart;
import org.apache.wss4j.common.crypto.Crypto;
import org.apache.wss4j.common.crypto.CryptoFactory;
import org.apache.wss4j.common.ext.WSSecurityException;
import org.apache.wss4j.dom.WSConstants;
import org.apache.wss4j.dom.WSDataRef;
import org.apache.wss4j.dom.engine.WSSecurityEngine;
import org.apache.wss4j.dom.engine.WSSecurityEngineResult;
import org.apache.wss4j.dom.handler.WSHandlerResult;
import org.apache.wss4j.dom.message.WSSecHeader;
import org.apache.wss4j.dom.message.WSSecSignature;
import org.apache.wss4j.dom.message.WSSecTimestamp;
import org.w3c.dom.Document;

public class BodySignature {
    public static void main(String[] arguments) throws Exception {
        DocumentBuilderFactory factory = DocumentBuilderFactory.newInstance();
        factory.setNamespaceAware(true);
        Crypto crypto = CryptoFactory.getInstance(stores(arguments[1]));
        for (int n = 2; n < arguments.length; n++) {
            File file = new File(arguments[n]);
            Document document = factory.newDocumentBuilder().parse(file);
            if (arguments[0].equals("sign")) {
                sign(document, crypto);
                TransformerFactory.newInstance().newTransformer()
                    .transform(new DOMSource(document), new StreamResult(file));
                continue;
            }
            try {
                System.out.println(verified(document, crypto));
            } catch (WSSecurityException refused) {
                System.out.println("refused " + refused.getErrorCode());
            }
        }
    }

    private static Properties stores(String folder) {
        String merlin = "org.apache.wss4j.crypto.merlin.";
        Properties found = new Properties();
        found.put("org.apache.wss4j.crypto.provider", "org.apache.wss4j.common.crypto.Merlin");
        for (String[] store : new String[][] {{"keystore", "own"}, {"truststore", "trust"}}) {
            found.put(merlin + store[0] + ".type", "PKCS12");
            found.put(merlin + store[0] + ".file", folder + "/" + store[1] + ".p12");
            found.put(merlin + store[0] + ".password", "changeit");
        }
        return found;
    }

    private static void sign(Document document, Crypto crypto) throws Exception {
        WSSecHeader header = new WSSecHeader(document);
        header.insertSecurityHeader();
        WSSecTimestamp time = new WSSecTimestamp(header);
        time.setTimeToLive(300);
        time.build();
        WSSecSignature signature = new WSSecSignature(header);
        signature.setUserInfo("own", "changeit");
        signature.setKeyIdentifierType(WSConstants.BST_DIRECT_REFERENCE);
        signature.setSignatureAlgorithm(WSConstants.RSA_SHA256);
        signature.setDigestAlgo(WSConstants.SHA256);
        String soap = document.getDocumentElement().getNamespaceURI();
        signature.getParts().add(new WSEncryptionPart("Body", soap, ""));
        signature.getParts().add(new WSEncryptionPart("Timestamp", WSConstants.WSU_NS, ""));
        signature.build(crypto);
    }

    @SuppressWarnings("unchecked")
    private static String verified(Document document, Crypto crypto) throws WSSecurityException {
        WSHandlerResult result =
            new WSSecurityEngine().processSecurityHeader(document, null, null, crypto);
        WSSecurityEngineResult signed = result.getActionResults().get(WSConstants.SIGN).get(0);
        TreeSet<String> covered = new TreeSet<>();
        for (WSDataRef part : (List<WSDataRef>) signed.get(WSSecurityEngineResult.TAG_DATA_REF_URIS)) {
            covered.add(part.getName().getLocalPart());
        }
        Object who = signed.get(WSSecurityEngineResult.TAG_X509_CERTIFICATE);
        return "good " + covered + " "
            + ((java.security.cert.X509Certificate) who).getSubjectX500Principal().getName();
    }
}
