// A client of a bus on node-soap: the generic service and a typed one, through the served WSDL.
'use strict';
const soap = require('soap');

const [base] = process.argv.slice(2);
const header = (verb) => ({ Verb: verb, Noun: 'Notes', Context: 'TESTING', Source: 'NODE' });

async function main() {
  const told = {};
  const generic = await soap.createClientAsync(`${base}/soap?wsdl`);
  const [got] = await generic.RequestAsync({ Header: header('get'), Request: { ID: ['a', 'b'] } });
  told.generic = `${got.Header.Verb} ${got.Reply.Result} ${got.Payload.Notes.Note.length}`;
  const [failed] = await generic.RequestAsync({ Header: header('get'), Request: { ID: ['nothing'] } });
  const errors = [].concat(failed.Reply.Error);
  told.failed = `${failed.Reply.Result} ${errors[0].code}`;
  const typed = await soap.createClientAsync(`${base}/typed/Notes/Request?wsdl`);
  const [made] = await typed.CreateNotesAsync({
    Header: header('create'), Payload: { Notes: { Note: [{ text: 'from node' }] } },
  });
  told.typed = `${made.Header.Verb} ${made.Reply.Result}`;
  try {
    await typed.CreateNotesAsync({ Header: header('delete'), Payload: { Notes: { Note: [] } } });
    told.fault = 'none';
  } catch (error) {
    const detail = error.root.Envelope.Body.Fault.detail.NotesFaultMessage;
    told.fault = detail.Reply.Result;
  }
  console.log(JSON.stringify(told));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
