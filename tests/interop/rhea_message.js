// Reads and writes AMQP 1.0 messages with rhea. One JSON request on stdin, one JSON answer on stdout:
//   {"decode": "<hex>"}            -> {"message": {...}, "types": {"<section>": {"<field>": "<type>"}}}
//   {"encode": {<message fields>}} -> {"hex": "<hex>"}
'use strict';

const { message, types } = require('rhea');

const SEQUENCE = 0x76;
const PROPERTIES = 0x73;
const APPLICATION_PROPERTIES = 0x74;
const PROPERTY_NAMES = [
    'message_id', 'user_id', 'to', 'subject', 'reply_to', 'correlation_id', 'content_type',
    'content_encoding', 'absolute_expiry_time', 'creation_time', 'group_id', 'group_sequence',
    'reply_to_group_id',
];

function plain(value) {
    if (value instanceof Date) return value.getTime();
    if (Buffer.isBuffer(value)) return { hex: value.toString('hex') };
    if (Array.isArray(value)) return value.map(plain);
    return value;
}

function names(values) {
    return Object.fromEntries(
        Object.entries(values).map(([name, value]) => [name, value.type.name]));
}

// The types as rhea's reader sees them, before its message gives up on them.
function typesOf(octets) {
    const found = {};
    const reader = new types.Reader(octets);
    while (reader.remaining()) {
        const section = reader.read();
        const code = Number(section.descriptor.value);
        if (code === PROPERTIES) {
            found.properties = names(Object.fromEntries(
                section.value.map((value, i) => [PROPERTY_NAMES[i], value])));
        } else if (code === APPLICATION_PROPERTIES) {
            const pairs = [];
            for (let i = 0; i < section.value.length; i += 2) {
                pairs.push([section.value[i].value, section.value[i + 1]]);
            }
            found.application_properties = names(Object.fromEntries(pairs));
        } else if (code === SEQUENCE) {
            found.body = section.value.map((value) => value.type.name);
        }
    }
    return found;
}

function decode(hex) {
    const octets = Buffer.from(hex, 'hex');
    const read = message.decode(octets);
    const answer = {};
    for (const name of ['durable', 'ttl', ...PROPERTY_NAMES]) {
        if (read[name] !== undefined) answer[name] = plain(read[name]);
    }
    answer.application_properties = Object.fromEntries(
        Object.entries(read.application_properties || {}).map(([k, v]) => [k, plain(v)]));
    answer.body = { section: read.body.typecode, content: plain(read.body.content) };
    return { message: answer, types: typesOf(octets) };
}

function encode(fields) {
    const application = { ...fields.application_properties };
    application.generated = types.wrap_timestamp(application.generated);
    application.messageMversion = types.wrap_int(application.messageMversion);
    return {
        hex: message.encode({
            ...fields,
            application_properties: application,
            body: message.sequence_section([fields.body[0], Buffer.from(fields.body[1], 'hex')]),
        }).toString('hex'),
    };
}

const request = JSON.parse(require('fs').readFileSync(0, 'utf8'));
process.stdout.write(JSON.stringify('decode' in request ? decode(request.decode) : encode(request.encode)));
