// A client of a bus on JAX-WS, from classes that wsimport made of the served WSDL files.
import ch.iec.tc57._2011._abstract.Operations;
import ch.iec.tc57._2011._abstract.Service;
import ch.iec.tc57._2011.notes_.Notes;
import ch.iec.tc57._2011.notesmessage.NotesPayloadType;
import ch.iec.tc57._2011.requestnotes.FaultMessage;
import ch.iec.tc57._2011.requestnotes.NotesPort;
import ch.iec.tc57._2011.requestnotes.RequestNotes;
import ch.iec.tc57._2011.schema.message.HeaderType;
import ch.iec.tc57._2011.schema.message.IDType;
import ch.iec.tc57._2011.schema.message.ReplyType;
import ch.iec.tc57._2011.schema.message.RequestMessageType;
import ch.iec.tc57._2011.schema.message.RequestType;
import ch.iec.tc57._2011.schema.message.ResponseMessageType;
import ch.iec.tc57._2011.schema.message.VerbType;
import java.net.URL;
import javax.xml.ws.Holder;
import javax.xml.ws.soap.MTOMFeature;
import org.w3c.dom.Element;

public class BusClient {
    static HeaderType header(String verb) {
        HeaderType header = new HeaderType();
        header.setVerb(VerbType.fromValue(verb));
        header.setNoun("Notes");
        header.setContext("TESTING");
        header.setSource("JAXWS");
        return header;
    }

    static ResponseMessageType get(Operations bus, String... ids) throws Exception {
        RequestMessageType request = new RequestMessageType();
        request.setHeader(header("get"));
        request.setRequest(new RequestType());
        for (String value : ids) {
            IDType id = new IDType();
            id.setValue(value);
            request.getRequest().getID().add(id);
        }
        return bus.request(request);
    }

    static String create(NotesPort port, String verb, byte[] picture) throws Exception {
        Notes.Note note = new Notes.Note();
        note.setText("from JAX-WS");
        note.setPicture(picture);
        Notes notes = new Notes();
        notes.getNote().add(note);
        NotesPayloadType payload = new NotesPayloadType();
        payload.setNotes(notes);
        Holder<HeaderType> head = new Holder<>(header(verb));
        Holder<NotesPayloadType> body = new Holder<>(payload);
        Holder<ReplyType> reply = new Holder<>();
        port.createNotes(head, null, body, reply);
        return head.value.getVerb().value() + " " + reply.value.getResult().value();
    }

    public static void main(String[] args) throws Exception {
        Operations generic = new Service(new URL(args[0] + "/soap?wsdl")).getSOAP();
        ResponseMessageType answer = get(generic, "a", "b");
        Element payload = (Element) answer.getPayload().getAny().get(0);
        int notes = payload.getElementsByTagNameNS("*", "Note").getLength();
        System.out.println(answer.getReply().getResult().value() + " " + notes);
        answer = get(generic, "nothing");
        String code = answer.getReply().getError().get(0).getCode();
        System.out.println(answer.getReply().getResult().value() + " " + code);
        RequestNotes typed = new RequestNotes(new URL(args[0] + "/typed/Notes/Request?wsdl"));
        byte[] picture = new byte[20000];
        System.out.println(create(typed.getNotesPort(), "create", picture));
        System.out.println(create(typed.getNotesPort(new MTOMFeature(1)), "create", picture));
        try {
            create(typed.getNotesPort(), "delete", picture);
            System.out.println("no fault");
        } catch (FaultMessage fault) {
            System.out.println("fault " + fault.getFaultInfo().getReply().getResult().value());
        }
    }
}
