// An endpoint of MADES 1.1 on node-soap: every operation of a node, over mutual TLS.
//
//     node_client.js TASK
//
// TASK is JSON: {url, code, peer, version, chain, key, roots, authKey, authId, message}. Prints one JSON object.
'use strict';
const crypto = require('crypto');
const fs = require('fs');
const soap = require('soap');

const task = JSON.parse(process.argv[2]);
const tls = { cert: fs.readFileSync(task.chain), key: fs.readFileSync(task.key), ca: fs.readFileSync(task.roots) };
const checkServerIdentity = () => undefined;
const sign = (text) => crypto.createSign('RSA-SHA1').update(text).sign(fs.readFileSync(task.key), 'base64');

async function service(name, portName) {
  const security = new soap.ClientSSLSecurity(tls.key, tls.cert, tls.ca, { checkServerIdentity });
  const options = {
    wsdl_options: { httpsAgent: new (require('https').Agent)({ ...tls, checkServerIdentity }) },
    forceSoap12Headers: task.version === '1.2',
  };
  const client = await soap.createClientAsync(`${task.url}/${name}?wsdl`, options);
  client.setSecurity(security);
  const port = client[portName || name][`${name}SOAP${task.version === '1.2' ? '12' : '11'}`];
  return (operation, body) =>
    new Promise((resolve, reject) =>
      port[operation](body, (error, result) => (error ? reject(error) : resolve(result))));
}

async function main() {
  const authentication = await service('MadesAuthenticationService');
  const messaging = await service('MadesInternalMessaging', 'MadesInternalMessagingService');
  const directory = await service('MadesDirectoryService');
  const nodes = await service('MadesNodeSynchronizationService');
  const { authToken: token, expiration } = await authentication('GetAuthenticationToken', { componentCode: task.code });
  const authToken = { token, signature: sign(token), certificateID: task.authId };
  const last = { authToken, serviceMversion: 1 };
  const told = { future: Number(expiration) > Date.now() };
  const me = { signature: sign(task.code), certificateID: task.authId };
  const accepted = await directory('SetComponentMversion', {
    componentCode: task.code, ...me, componentMVersion: 1, ...last,
  });
  told.accepted = [accepted.nodeMversion, accepted.acceptance];
  const upload = await messaging('UploadMessages', { messages: [task.message], ...last });
  told.uploaded = upload.uploadedMessages;
  const down = await messaging('DownloadMessages', { endpoints: [{ code: task.code, ...me }], ...last });
  const messages = [].concat(down.messages);
  told.same = messages[0].content === task.message.content;
  told.waiting = down.waitingMessages;
  await messaging('ConfirmDownload', { messageIDs: messages.map((m) => m.messageID), ...last });
  const found = await directory('GetComponent', { componentCode: task.peer, ...last });
  told.component = [found.component.code, found.component.type, found.component.routing.node];
  const certificate = await directory('GetCertificate', { componentCode: task.peer, type: 'ENCRYPTION', ...last });
  told.certificate = certificate.certificate.certificateID;
  const version = await nodes('GetNodeMversion', { mversion: 1 });
  told.node = [version.mversion, version.nodeCode];
  const data = await nodes('GetAllDirectoryData', { serviceMversion: 1 });
  told.components = [].concat(data.components).map((c) => c.information.code).sort();
  try {
    await directory('GetCertificate', { componentCode: task.peer, type: 'SIGNING', ...last });
  } catch (error) {
    const fault = error.root.Envelope.Body.Fault;
    told.fault = (fault.detail || fault.Detail).GetCertificateError.errorCode;
  }
  console.log(JSON.stringify(told));
}

main().catch((error) => { console.error(error.message, (error.body || '').slice(0, 2000)); process.exit(1); });
