// An AMQP client on rhea, driven by test_clients.py.
//
//     rhea_client.js PORT FOLDER TASK ADDRESS NUMBER
//
// FOLDER holds chain.pem, key.pem and roots.pem. Prints one JSON object: what happened.
'use strict';

const fs = require('fs');
const path = require('path');
const rhea = require('rhea');

const [port, folder, task, address, count] = process.argv.slice(2);
const number = parseInt(count, 10);
const result = { outcomes: [], messages: [], error: null };
const read = (name) => fs.readFileSync(path.join(folder, name));

const container = rhea.create_container();
const connection = container.connect({
    transport: 'tls',
    host: '127.0.0.1',
    port: parseInt(port, 10),
    cert: read('chain.pem'),
    key: read('key.pem'),
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

function failed(context, of) {
    const error = of && of.error;
    if (error) {
        result.error = [error.condition, error.description];
    }
    finish();
}

container.on('sender_error', (context) => failed(context, context.sender));
container.on('receiver_error', (context) => failed(context, context.receiver));
container.on('connection_error', (context) => failed(context, context.connection));
container.on('disconnected', (context) => {
    if (!finished && context.error) {
        result.error = ['disconnected', String(context.error)];
    }
});
process.on('exit', () => console.log(JSON.stringify(result)));

function produce(options, bodyOf, settles) {
    let sent = 0;
    const sender = connection.open_sender(Object.assign({ target: { address } }, options));
    sender.on('sendable', () => {
        result.max_message_size = Number(sender.max_message_size || 0);
        while (sender.sendable() && sent < number) {
            sender.send({ subject: 'A10', application_properties: { n: sent }, body: bodyOf(sent) });
            sent += 1;
        }
    });
    const say = (name) => (context) => {
        const state = context.delivery.remote_state;
        const error = state && state.error;
        result.outcomes.push([name, error ? error.condition : null]);
        if (settles) {
            context.delivery.update(true);
        }
        if (result.outcomes.length === number) {
            setImmediate(finish);
        }
    };
    sender.on('accepted', say('accepted'));
    sender.on('rejected', say('rejected'));
    sender.on('released', say('released'));
    sender.on('modified', say('modified'));
    return sender;
}

function consume(options, decide) {
    const receiver = connection.open_receiver(
        Object.assign({ source: { address }, credit_window: 0, autoaccept: false }, options)
    );
    receiver.on('receiver_open', () => receiver.add_credit(number));
    receiver.on('message', (context) => {
        const body = context.message.body;
        const content = body && body.typecode === 0x75 ? body.content : body;
        result.messages.push(Buffer.isBuffer(content) ? content.length : content);
        result.delivery_count = context.message.delivery_count || 0;
        decide(context);
    });
    return receiver;
}

const tasks = {
    produce: () => produce({}, (n) => `message ${n}`),
    'produce-exactly-once': () =>
        produce({ rcv_settle_mode: 1, autosettle: false }, (n) => `message ${n}`, true),
    'produce-large': () => {
        const body = rhea.message.data_section(Buffer.alloc(number, 'x'));
        const sender = connection.open_sender({ target: { address } });
        sender.once('sendable', () => sender.send({ body }));
        sender.on('accepted', () => {
            result.outcomes.push(['accepted', null]);
            finish();
        });
    },
    consume: () =>
        consume({}, (context) => {
            context.delivery.accept();
            if (result.messages.length === number) {
                setImmediate(finish);
            }
        }),
    reject: () =>
        consume({}, (context) => {
            context.delivery.reject({ condition: 'amqp:decode-error', description: 'not mine' });
            if (result.messages.length === number) {
                setImmediate(finish);
            }
        }),
    'consume-exactly-once': () => {
        const receiver = consume({ rcv_settle_mode: 1, autosettle: false }, (context) =>
            context.delivery.update(false, rhea.message.accepted().described())
        );
        receiver.on('settled', (context) => {
            result.outcomes.push('settled');
            context.delivery.update(true);
            if (result.outcomes.length === number) {
                setImmediate(finish);
            }
        });
    },
    drain: () => {
        const receiver = consume({}, (context) => context.delivery.accept());
        receiver.removeAllListeners('receiver_open');
        receiver.on('receiver_open', () => {
            receiver.drain = true;
            receiver.add_credit(number);
        });
        receiver.on('receiver_drained', () => {
            result.drained = number - result.messages.length;
            finish();
        });
    },
    anonymous: () => {
        const sender = connection.open_sender({ target: {} });
        sender.on('sendable', finish);
    },
    dynamic: () => {
        const receiver = connection.open_receiver({ source: { dynamic: true } });
        receiver.on('receiver_open', () => {
            result.messages.push(receiver.source ? receiver.source.address : null);
        });
    },
};

tasks[task]();
