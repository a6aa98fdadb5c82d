// A participant written from the interface document alone, with RabbitMQ's usual client for Node.
// node cmm_amqplib.js URL USER P12 PASSPHRASE CA OUT_AREA IN_AREA PERIOD_START PERIOD_END
'use strict';
const amqp = require('amqplib');
const fs = require('fs');
const zlib = require('zlib');

const [url, user, p12, passphrase, ca, outArea, inArea, start, end] = process.argv.slice(2);

function body(message) {
  const zipped = message.properties.contentEncoding === 'gzip';
  return (zipped ? zlib.gunzipSync(message.content) : message.content).toString('utf8');
}

async function main() {
  const connection = await amqp.connect(url, {
    pfx: fs.readFileSync(p12),
    passphrase,
    ca: [fs.readFileSync(ca)],
    credentials: amqp.credentials ? amqp.credentials.external() : require('amqplib/lib/credentials').external(),
  });
  const responses = new Map();
  const waiting = new Map();
  const broadcasts = [];
  const returned = [];
  const publisher = await connection.createChannel();
  publisher.on('return', (message) => returned.push(message.properties.correlationId));

  function send(text, id, options = {}) {
    const zipped = options.gzip;
    publisher.publish(`cmm.request.${user}`, options.key || 'capacity.request',
      zipped ? zlib.gzipSync(Buffer.from(text)) : Buffer.from(text), {
        contentType: 'text/xml;v=1.0',
        contentEncoding: zipped ? 'gzip' : undefined,
        correlationId: id,
        replyTo: `cmm.responseQueue.${user}`,
        expiration: '30000',
        mandatory: true,
      });
  }

  function answer(id) {
    if (responses.has(id)) return Promise.resolve(responses.get(id));
    return new Promise((resolve) => waiting.set(id, resolve));
  }

  // Login comes first; the response queue appears while it is handled.
  send(`<Login arguments="X_Border:DE-DK, X_Event:ALLOCATION_PMI|PUBLISH"/>`, 'login');
  for (let attempt = 0; ; attempt += 1) {
    const channel = await connection.createChannel();
    channel.on('error', () => {});
    try {
      await channel.consume(`cmm.responseQueue.${user}`, (message) => {
        const id = message.properties.correlationId;
        const told = { text: body(message), contentType: message.properties.contentType };
        responses.set(id, told);
        if (waiting.has(id)) waiting.get(id)(told);
      }, { noAck: true });
      break;
    } catch (error) {
      if (attempt > 200) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
  const login = await answer('login');
  const listener = await connection.createChannel();
  await listener.consume(`cmm.broadcastQueue.${user}`, (message) => {
    broadcasts.push({
      exchange: message.fields.exchange,
      headers: message.properties.headers,
      encoding: message.properties.contentEncoding || null,
      text: body(message),
    });
  }, { noAck: true });

  const period = `periodStart="${start}" periodEnd="${end}"`;
  const alc = `<Alc clientId="js-1" bmCode="" ${period} quantity="100"/>`;
  const areas = `inArea="${inArea}" outArea="${outArea}"`;
  const request = `<AllocationReq type="AON"><Allocations ${areas}>${alc}</Allocations></AllocationReq>`;
  send(request, 'allocate', { gzip: true, key: 'cmm.request.management' });
  const allocation = await answer('allocate');
  const connector = `<InterConnector area1="${outArea}" area2="${inArea}"/>`;
  send(`<AtcDataReq date="${start}">${connector}</AtcDataReq>`, 'atc', { key: 'cmm.request.inquiry' });
  const atc = await answer('atc');
  send('<AtcDataReq', 'broken');
  const broken = await answer('broken');
  const deadline = Date.now() + 20000;
  const enough = () => broadcasts.some((b) => b.exchange === 'cmm.heartbeat')
    && broadcasts.filter((b) => b.exchange === 'cmm.atc.DE-DK').length >= 2;
  while (!enough() && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  console.log(JSON.stringify({ login, allocation, atc, broken, broadcasts, returned }));
  await connection.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
