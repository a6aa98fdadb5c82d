// A business application on rhea, driven by test_application_channel.py.
//
//     application_rhea.js PORT TASK
//
// TASK is JSON: {user, password, tls: {ca, cert, key}, send: QUEUE, messages: [...]} or
// {consume: QUEUE, count: N, outcome: "accept"}. Prints one JSON object: what happened.
'use strict';

const fs = require('fs');
const rhea = require('rhea');

const [port, text] = process.argv.slice(2);
const task = JSON.parse(text);
const result = { outcomes: [], messages: [], error: null };
const container = rhea.create_container();
const options = { host: '127.0.0.1', port: parseInt(port, 10), reconnect: false };
if (task.user) {
    options.username = task.user;
    options.password = task.password;
}
if (task.tls) {
    options.transport = 'tls';
    options.ca = fs.readFileSync(task.tls.ca);
    options.servername = 'localhost';
    if (task.tls.cert) {
        options.cert = fs.readFileSync(task.tls.cert);
        options.key = fs.readFileSync(task.tls.key);
        options.enable_sasl_external = true;
    }
}
const connection = container.connect(options);

let finished = false;
let opened = false;
container.on('connection_open', () => {
    opened = true;
});
function finish() {
    if (!finished) {
        finished = true;
        connection.close();
    }
}
function failed(of) {
    const error = of && of.error;
    result.error = error ? [error.condition, error.description] : ['failed', ''];
    finish();
}
container.on('sender_error', (context) => failed(context.sender));
container.on('receiver_error', (context) => failed(context.receiver));
container.on('connection_error', (context) => failed(context.connection));
container.on('error', (error) => {
    result.error = ['error', String(error)];
});
container.on('disconnected', (context) => {
    if (!finished || !opened) {
        result.error = result.error || ['disconnected', String(context.error)];
    }
});
process.on('exit', () => console.log(JSON.stringify(result)));

function encoded(fields) {
    const message = { durable: true, application_properties: fields.properties || {} };
    if (fields.correlation !== undefined) {
        message.correlation_id = fields.correlation;
    }
    if (fields.id !== undefined) {
        message.message_id = fields.id;
    }
    if (fields.value !== undefined) {
        message.body = fields.value;
    } else {
        const body = fields.size ? Buffer.alloc(fields.size, 'x') : Buffer.from(fields.body || '');
        message.body = rhea.message.data_section(body);
    }
    return message;
}

if (task.send !== undefined) {
    const sender = connection.open_sender({ target: { address: task.send } });
    let sent = 0;
    sender.on('sendable', () => {
        while (sender.sendable() && sent < task.messages.length) {
            sender.send(encoded(task.messages[sent]));
            sent += 1;
        }
        if (!task.messages.length) {
            finish();
        }
    });
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
        rcv_settle_mode: task.second ? 1 : 0,
    });
    receiver.on('receiver_open', () => {
        if (task.count) {
            receiver.add_credit(task.count);
        } else {
            finish();
        }
    });
    let settled = 0;
    const done = () => {
        settled += 1;
        if (settled === task.count) {
            setTimeout(finish, 50);
        }
    };
    receiver.on('settled', () => task.second && done());
    receiver.on('message', (context) => {
        const message = context.message;
        const body = message.body;
        const isData = body && body.typecode === 0x75;
        result.messages.push({
            properties: message.application_properties || {},
            correlation: message.correlation_id === undefined ? null : message.correlation_id,
            id: message.message_id === undefined ? null : message.message_id,
            count: message.delivery_count || 0,
            durable: message.durable === true,
            kind: isData ? 'data' : 'value',
            body: isData ? body.content.toString() : body === undefined ? null : body,
        });
        const outcome = task.outcome || 'accept';
        if (outcome === 'crash') {
            if (result.messages.length === task.count) {
                connection.socket.destroy();
                finished = true;
                setTimeout(() => process.exit(0), 50);
            }
            return;
        }
        if (outcome === 'modified') {
            context.delivery.modified({ delivery_failed: true, undeliverable_here: true });
        } else {
            context.delivery[outcome](outcome === 'reject' ? { condition: 'app:bad' } : undefined);
        }
        if (!task.second) {
            done();
        }
    });
}
