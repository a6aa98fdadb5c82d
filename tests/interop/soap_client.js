// A business application on node-soap: all five services, one version of SOAP.
'use strict';
const fs = require('fs');
const soap = require('soap');

const [senderUrl, recipientUrl, version, user, password, type, file] = process.argv.slice(2);

async function client(url) {
  const options = { forceSoap12Headers: version === '1.2' };
  const made = await soap.createClientAsync(`${url}?wsdl`, options);
  made.setSecurity(new soap.BasicAuthSecurity(user, password));
  const port = made.MadesEndpointV2Service[version === '1.1' ? 'MadesEndpointSOAP11' : 'MadesEndpointSOAP12'];
  return (operation, body) =>
    new Promise((resolve, reject) =>
      port[operation](body, (error, result) => (error ? reject(error) : resolve(result))));
}

async function until(call, id, state) {
  for (let n = 0; n < 600; n += 1) {
    const { messageStatus } = await call('CheckMessageStatus', { messageID: id });
    if (messageStatus.state === state) return messageStatus;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${id} never became ${state}`);
}

async function fault(call, operation, body, item) {
  try {
    await call(operation, body);
  } catch (error) {
    if (!error.root) throw error;
    const found = error.root.Envelope.Body.Fault;
    const detail = (found.detail || found.Detail)[`${operation}Error`];
    return `${detail.errorCode} ${detail[item]}`;
  }
  throw new Error(`${operation} was not refused`);
}

async function main() {
  const [sender, recipient] = [await client(senderUrl), await client(recipientUrl)];
  const content = fs.readFileSync(file).toString('base64');
  const message = {
    receiverCode: 'E2', messageType: type, content, senderApplication: 'App7', baMessageID: '4711',
  };
  const told = {};
  const request = { message, conversationID: `c-${type}` };
  told.sent = (await sender('SendMessage', request)).messageID;
  told.again = (await sender('SendMessage', request)).messageID;
  const test = await sender('ConnectivityTest', { receiverCode: 'E2', messageType: type });
  await until(sender, test.messageID, 'DELIVERED');
  told['received before'] = (await until(sender, told.sent, 'DELIVERED')).receiveTimestamp || null;
  let found = await recipient('ReceiveMessage', { messageType: type, downloadMessage: false });
  told.waiting = String(found.remainingMessagesCount);
  told.bare = String((found.receivedMessage.content || '').length);
  found = await recipient('ReceiveMessage', { messageType: type, downloadMessage: true });
  const got = found.receivedMessage;
  told.remaining = String(found.remainingMessagesCount);
  told.same = String(got.content === content);
  told.application = got.senderApplication;
  told.ba = got.baMessageID;
  told.from = got.senderCode;
  told.confirmed = (await recipient('ConfirmReceiveMessage', { messageID: got.messageID })).messageID;
  found = await recipient('ReceiveMessage', { messageType: type, downloadMessage: true });
  told.left = found.receivedMessage ? 'something' : 'nothing';
  const status = await until(sender, told.sent, 'RECEIVED');
  told.trace = status.trace.trace.map((item) => `${item.state}@${item.component}`).join(' ');
  told['received after'] = String(Boolean(status.receiveTimestamp));
  const nobody = { message: { ...message, receiverCode: 'NOBODY' } };
  told.SendMessage = await fault(sender, 'SendMessage', nobody, 'receiverCode');
  told.ConnectivityTest = await fault(
    sender, 'ConnectivityTest', { receiverCode: 'NOBODY', messageType: type }, 'receiverCode');
  told.ReceiveMessage = await fault(
    recipient, 'ReceiveMessage', { messageType: 'A_1', downloadMessage: true }, 'messageType');
  for (const operation of ['ConfirmReceiveMessage', 'CheckMessageStatus']) {
    told[operation] = await fault(recipient, operation, { messageID: 'nothing' }, 'messageID');
  }
  console.log(JSON.stringify(told));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
