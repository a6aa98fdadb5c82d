// A broker without rules on rhea, driven by test_endpoint_and_others.py: queues in memory, TLS, EXTERNAL.
//
//     queues_rhea.js FOLDER
//
// FOLDER holds chain.pem, key.pem and roots.pem. Prints one JSON object a line: first its port, then each
// link that a client attaches and each message that it takes.
'use strict';

const fs = require('fs');
const path = require('path');
const rhea = require('rhea');

const folder = process.argv[2];
const read = (name) => fs.readFileSync(path.join(folder, name));
const say = (fact) => process.stdout.write(`${JSON.stringify(fact)}\n`);

// Octets are passed on as they came.
rhea.message.decode = (data) => data;

const container = rhea.create_container({ id: 'B1' });
container.sasl.server_add_external(container.sasl_server_mechanisms);

const queues = new Map();
function queue(address) {
    if (!queues.has(address)) {
        queues.set(address, { messages: [], consumers: [] });
    }
    return queues.get(address);
}

function pump(address) {
    const { messages, consumers } = queue(address);
    for (const consumer of consumers) {
        while (messages.length && consumer.sendable()) {
            consumer.send(messages.shift(), undefined, 0);
        }
    }
}

const who = (context) => context.connection.socket.getPeerCertificate().subject.CN;

container.on('sender_open', (context) => {
    const address = context.sender.source.address;
    context.sender.set_source({ address });
    queue(address).consumers.push(context.sender);
    say({ attached: 'consumer', by: who(context), address });
    pump(address);
});
container.on('sendable', (context) => pump(context.sender.source.address));
container.on('sender_close', (context) => {
    const place = queue(context.sender.source.address);
    place.consumers = place.consumers.filter((one) => one !== context.sender);
});
container.on('receiver_open', (context) => {
    const address = context.receiver.target.address;
    context.receiver.set_target({ address });
    say({ attached: 'producer', by: who(context), address });
});
container.on('message', (context) => {
    const address = context.receiver.target.address;
    queue(address).messages.push(context.message);
    say({ taken: address, from: who(context), octets: context.message.length });
    pump(address);
});
container.on('connection_error', () => {});
container.on('error', (error) => say({ error: String(error) }));

const server = container.listen({
    host: '127.0.0.1',
    port: 0,
    transport: 'tls',
    cert: read('chain.pem'),
    key: read('key.pem'),
    ca: read('roots.pem'),
    requestCert: true,
    rejectUnauthorized: true,
});
server.on('listening', () => say({ port: server.address().port }));
