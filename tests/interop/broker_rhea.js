// An endpoint on rhea, driven by test_broker_clients.py.
//
//     broker_rhea.js PORT FOLDER TASK
//
// FOLDER holds chain.pem, key.pem and roots.pem. TASK is JSON: {produce: QUEUE, messages: [...]} or
// {consume: QUEUE, count: N}. tls: false speaks plain AMQP, shown: false shows no certificate, after: FILE
// sends nothing before the file is there. Prints one JSON object: what happened.
'use strict';

const fs = require('fs');
const path = require('path');
const rhea = require('rhea');

const [port, folder, text] = process.argv.slice(2);
const task = JSON.parse(text);
const result = { outcomes: [], messages: [], error: null };
const read = (name) => fs.readFileSync(path.join(folder, name));
const container = rhea.create_container();
const connection = container.connect({
    transport: task.tls === false ? 'tcp' : 'tls',
    host: '127.0.0.1',
    port: parseInt(port, 10),
    cert: task.shown === false ? undefined : read('chain.pem'),
    key: task.shown === false ? undefined : read('key.pem'),
    ca: read('roots.pem'),
    rejectUnauthorized: true,
    // Host names are not matched: the certificate names a component.
    checkServerIdentity: () => undefined,
    enable_sasl_external: true,
    reconnect: false,
});

let finished = false;
function finish() {
    if (!finished) {
        finished = true;
        connection.close();
    }
}
function failed(of) {
    if (of && of.error) {
        result.error = [of.error.condition, of.error.description];
    }
    finish();
}
container.on('sender_error', (context) => failed(context.sender));
container.on('receiver_error', (context) => failed(context.receiver));
container.on('connection_error', (context) => failed(context.connection));
container.on('disconnected', (context) => {
    if (!finished) {
        result.error = result.error || ['disconnected', String(context.error)];
    }
});
process.on('exit', () => console.log(JSON.stringify(result)));

function encoded(fields) {
    const properties = {
        messageID: fields.id,
        receiverCode: fields.receiver,
        senderCode: fields.sender,
        generated: rhea.types.wrap_timestamp(Date.now()),
        internalType: 'STANDARD_MESSAGE',
        messageMversion: rhea.types.wrap_int(2),
    };
    (fields.drop || []).forEach((name) => delete properties[name]);
    const message = {
        durable: true,
        ttl: fields.ttl,
        message_id: fields.id,
        subject: fields.subject,
        absolute_expiry_time: Date.now() + fields.ttl,
        application_properties: properties,
        body: rhea.message.sequence_section(['<metadata/>', Buffer.from(fields.body)]),
    };
    (fields.drop || []).forEach((name) => delete message[name]);
    return message;
}

if (task.produce !== undefined) {
    const sender = connection.open_sender({ target: { address: task.produce } });
    let sent = 0;
    sender.on('sendable', send);
    function send() {
        if (task.after && !fs.existsSync(task.after)) {
            setTimeout(send, 50);
            return;
        }
        while (sender.sendable() && sent < task.messages.length) {
            sender.send(encoded(task.messages[sent]));
            sent += 1;
        }
        if (!task.messages.length) {
            finish();
        }
    }
    const say = (name) => (context) => {
        const state = context.delivery.remote_state;
        const error = state && state.error;
        result.outcomes.push([name, error ? error.condition : null]);
        if (result.outcomes.length === task.messages.length) {
            setImmediate(finish);
        }
    };
    ['accepted', 'rejected', 'released', 'modified'].forEach((name) => sender.on(name, say(name)));
} else {
    const receiver = connection.open_receiver({
        source: { address: task.consume },
        credit_window: 0,
        autoaccept: false,
    });
    receiver.on('receiver_open', () => {
        receiver.add_credit(task.count || 1);
        if (!task.count) {
            finish();
        }
    });
    receiver.on('message', (context) => {
        const message = context.message;
        result.messages.push([
            message.application_properties.messageID,
            message.body.content[1].toString(),
            message.delivery_count || 0,
        ]);
        if (task.accept !== false) {
            context.delivery.accept();
        }
        if (result.messages.length === task.count) {
            setTimeout(finish, 100);
        }
    });
}
