// The tests' client program for kafkajs: one request and one answer per line, both in JSON.
"use strict";

process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";
const { readFileSync } = require("node:fs");
const readline = require("node:readline");
const { randomUUID } = require("node:crypto");
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");

CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");
const TIMEOUT_MS = 60_000;
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));

function kafka({ address, trusted, mechanism, user, password }) {
  const ssl = trusted ? { ca: [readFileSync(trusted, "utf-8")] } : undefined;
  const sasl = mechanism ? { mechanism: mechanism.toLowerCase(), username: user, password } : undefined;
  return new Kafka({ brokers: address.split(","), logLevel: logLevel.NOTHING, ssl, sasl });
}

// kafkajs keeps headers in an object: several values of one name are a list.
function headersOf(record) {
  const headers = {};
  for (const { key, value } of record.headers || []) (headers[key] ||= []).push(bytes(value));
  return headers;
}

function toRecord(partition, { key, value, headers }) {
  const fields = [];
  for (const [name, values] of Object.entries(headers || {})) {
    for (const item of Array.isArray(values) ? values : [values]) fields.push({ key: name, value: text(item) });
  }
  return { partition, key: text(key), value: text(value), headers: fields };
}

async function write(request) {
  const transactional = Boolean(request.transactional_id);
  const producer = kafka(request).producer({
    transactionalId: request.transactional_id || undefined,
    idempotent: transactional,
    maxInFlightRequests: transactional ? 1 : null,
  });
  await producer.connect();
  const messages = request.records.map((record) => ({
    partition: record.partition,
    key: bytes(record.key),
    value: bytes(record.value),
    headers: headersOf(record),
  }));
  const sent = { topic: request.topic, compression: CODECS[request.codec], messages, acks: -1 };
  if (!transactional) await producer.send(sent);
  else await transact(await producer.transaction(), sent, request);
  await producer.disconnect();
  return {};
}

async function transact(transaction, sent, { topic, abort, offsets_of: group }) {
  await transaction.send(sent);
  if (group) {
    const partitions = [{ partition: 0, offset: String(sent.messages.length) }];
    await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] });
  }
  await (abort ? transaction.abort() : transaction.commit());
}

// kafkajs reads only in a group.
async function read(request) {
  const consumer = kafka(request).consumer({
    groupId: `reader-${randomUUID()}`,
    readUncommitted: !request.committed,
    maxWaitTimeInMs: 100,
    maxBytesPerPartition: 16 << 20,
    maxBytes: 64 << 20,
  });
  const records = [];
  await consumer.connect();
  await consumer.subscribe({ topics: [request.topic], fromBeginning: true });
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`${records.length} records in time`)), TIMEOUT_MS).unref();
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        records.push(toRecord(partition, message));
        if (records.length >= request.count) resolve();
      },
    });
  });
  await consumer.disconnect();
  return { records };
}

// The member of a group; the program has at most one.
let own = null;

async function join(request) {
  const consumer = kafka(request).consumer({
    groupId: request.group,
    heartbeatInterval: 300,
    maxWaitTimeInMs: 100,
  });
  own = { consumer, topic: request.topic, assigned: [], records: [], ends: new Map(), failure: null };
  consumer.on(consumer.events.CRASH, ({ payload }) => (own.failure = payload.error));
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    own.assigned = payload.memberAssignment[request.topic] || [];
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [request.topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      own.records.push(toRecord(partition, message));
      own.ends.set(partition, String(BigInt(message.offset) + 1n));
    },
  });
  return {};
}

async function poll(request) {
  await new Promise((resolve) => setTimeout(resolve, request.timeout_ms));
  if (own.failure) throw own.failure;
  return { records: own.records.splice(0), assigned: own.assigned };
}

async function commit() {
  const offsets = [...own.ends].filter(([partition]) => own.assigned.includes(partition));
  await own.consumer.commitOffsets(offsets.map(([partition, offset]) => ({ topic: own.topic, partition, offset })));
  return {};
}

async function leave() {
  await own.consumer.disconnect();
  own = null;
  return {};
}

// Creates, changes, describes and deletes a topic.
async function administer(request) {
  const { topic } = request;
  const name = "retention.ms";
  const admin = kafka(request).admin();
  const retention = async () => {
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic, configNames: [name] };
    const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [resource] });
    return resources[0].configEntries[0].configValue;
  };
  await admin.connect();
  const definition = { topic, numPartitions: 3, replicationFactor: 1, configEntries: [{ name, value: "1234000" }] };
  await admin.createTopics({ topics: [definition] });
  const seen = [await retention()];
  const altered = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name, value: "999000" }] };
  await admin.alterConfigs({ resources: [altered] });
  seen.push(await retention());
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] });
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  seen.push(String(topics[0].partitions.length));
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
  return { seen };
}

const ACTIONS = { write, read, join, poll, commit, leave, administer };

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    let answer;
    try {
      answer = await ACTIONS[request.do](request);
    } catch (error) {
      answer = { error: String(error.stack || error) };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
