// What programs do with the npm client node-zookeeper-client. Arguments: host:port, and a part of the names of the tests to run.
// The package is found through NODE_PATH; what this prints is read by the suite that started it.

'use strict';

const assert = require('node:assert');
const readline = require('node:readline');
const { promisify } = require('node:util');
const zookeeper = require('node-zookeeper-client');

const SESSION_MS = 10000;
const LIMIT_MS = 30000;
const QUIET_MS = 200;
const { CreateMode, Exception } = zookeeper;
const [address, only = ''] = process.argv.slice(2);
const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
let count = 0;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until the condition holds. */
async function until(what, condition) {
  const deadline = Date.now() + LIMIT_MS;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `${what}: not within ${LIMIT_MS} ms`);
    await pause(5);
  }
}

/** A connected client whose methods return promises; `states` holds the names of the states it went through. */
async function connect() {
  const raw = zookeeper.createClient(address, { sessionTimeout: SESSION_MS, retries: 30 });
  const client = { raw, states: [] };
  for (const name of ['create', 'remove', 'setData', 'setACL', 'getACL', 'mkdirp']) {
    client[name] = promisify(raw[name]).bind(raw);
  }
  // These answer with several values, and take a watcher.
  for (const name of ['getData', 'getChildren', 'exists']) {
    client[name] = (path, watcher) =>
      new Promise((resolve, reject) => {
        raw[name](path, watcher || (() => {}), (error, ...values) => (error ? reject(error) : resolve(values)));
      });
  }
  client.close = () => new Promise((resolve) => raw.once('disconnected', resolve).close());
  raw.on('state', (state) => client.states.push(state.name));
  raw.connect();
  await until('the client connects', () => client.states.includes('SYNC_CONNECTED'));
  return client;
}

/** A watcher that keeps its events as text. */
function events() {
  const seen = [];
  const watcher = (event) => seen.push(`${event.name} ${event.path}`);
  watcher.expect = async (expected) => {
    await until(expected, () => seen.length > 0);
    assert.strictEqual(seen.shift(), expected);
  };
  watcher.expectNone = async () => {
    await pause(QUIET_MS);
    assert.deepStrictEqual(seen, []);
  };
  return watcher;
}

/** Fails unless the promise is refused with this code of Exception. */
const refused = (promise, code) => assert.rejects(promise, (error) => error.getCode() === Exception[code]);

const root = (client) => client.create(`/node-${Date.now()}-${process.pid}-${count++}`, Buffer.from('data'));

async function nodes() {
  const client = await connect();
  const path = await root(client);
  const [data, stat] = await client.getData(path);
  assert.strictEqual(data.toString(), 'data');
  assert.strictEqual(stat.version, 0);
  assert.strictEqual((await client.setData(path, Buffer.from('new'), 0)).version, 1);
  await refused(client.setData(path, Buffer.from(''), 0), 'BAD_VERSION');
  await refused(client.create(path), 'NODE_EXISTS');
  await client.mkdirp(`${path}/deep/er`);
  assert.deepStrictEqual((await client.getChildren(path))[0], ['deep']);
  await refused(client.remove(path, -1), 'NOT_EMPTY');
  await refused(client.remove(`${path}/deep/er`, 7), 'BAD_VERSION');
  for (const gone of [`${path}/deep/er`, `${path}/deep`, path]) await client.remove(gone, -1);
  assert.strictEqual((await client.exists(path))[0], null);
  await refused(client.getData(path), 'NO_NODE');
  await client.close();
}

async function modes() {
  const [watcher, client] = [await connect(), await connect()];
  const path = await root(watcher);
  for (const [name, mode] of Object.entries(CreateMode)) {
    const created = await client.create(`${path}/${name}-`, Buffer.from('x'), mode);
    assert.strictEqual(created.length, `${path}/${name}-`.length + (name.endsWith('SEQUENTIAL') ? 10 : 0));
    const owner = (await client.exists(created))[0].ephemeralOwner;
    assert.strictEqual(owner.equals(client.raw.getSessionId()), name.startsWith('EPHEMERAL'));
  }
  await refused(client.create(`${path}/EPHEMERAL-/x`), 'NO_CHILDREN_FOR_EPHEMERALS');
  await client.close();
  await until('the ephemerals go', async () => (await watcher.getChildren(path))[0].length === 2);
  await watcher.close();
}

async function multis() {
  const client = await connect();
  const path = await root(client);
  const commit = (transaction) =>
    new Promise((resolve) => transaction.commit((error, results) => resolve({ error, results })));
  const good = client.raw.transaction().create(`${path}/a`, Buffer.from('1')).check(path, 0).setData(`${path}/a`, Buffer.from('2'), 0);
  assert.strictEqual((await commit(good)).error, null);
  const bad = await commit(client.raw.transaction().remove(`${path}/a`, -1).check(path, 9));
  assert.strictEqual(bad.error.getCode(), Exception.BAD_VERSION);
  assert.strictEqual((await client.getData(`${path}/a`))[0].toString(), '2');
  await client.close();
}

async function acls() {
  const [owner, other] = [await connect(), await connect()];
  const path = `${await root(owner)}/secret`;
  owner.raw.addAuthInfo('digest', Buffer.from('u:p'));
  await owner.create(path, Buffer.from('secret'), zookeeper.ACL.CREATOR_ALL_ACL);
  // ZooKeeper promises no common view of two clients, so the other may not see the node at once.
  const code = () => other.getData(path).then(() => 0, (error) => error.getCode());
  await until('the other sees the node', async () => (await code()) !== Exception.NO_NODE);
  assert.strictEqual(await code(), Exception.NO_AUTH);
  other.raw.addAuthInfo('digest', Buffer.from('u:p'));
  assert.strictEqual((await other.getData(path))[0].toString(), 'secret');
  const acl = await owner.getACL(path);
  assert.strictEqual(acl[0].id.scheme, 'digest');
  await owner.setACL(path, zookeeper.ACL.READ_ACL_UNSAFE, 0);
  await refused(owner.setData(path, Buffer.from(''), -1), 'NO_AUTH');
  await Promise.all([owner.close(), other.close()]);
}

async function oneShotWatches() {
  const [client, other] = [await connect(), await connect()];
  const path = await root(client);
  const [data, children, exists] = [events(), events(), events()];
  await client.getData(path, data);
  await client.getChildren(path, children);
  await client.exists(`${path}/a`, exists);
  await other.setData(path, Buffer.from('1'), -1);
  await other.setData(path, Buffer.from('2'), -1);
  await data.expect(`NODE_DATA_CHANGED ${path}`);
  await other.create(`${path}/a`);
  await exists.expect(`NODE_CREATED ${path}/a`);
  await children.expect(`NODE_CHILDREN_CHANGED ${path}`);
  await other.remove(`${path}/a`, -1);
  await data.expectNone();
  await children.expectNone();
  await exists.expectNone();
  await Promise.all([client.close(), other.close()]);
}

async function restart() {
  const client = await connect();
  const path = await root(client);
  await client.create(`${path}/e`, Buffer.from('x'), CreateMode.EPHEMERAL);
  await client.create(`${path}/goes`);
  const [changed, gone, born] = [events(), events(), events()];
  await client.getData(path, changed);
  await client.exists(`${path}/goes`, gone);
  await client.exists(`${path}/new`, born);
  const session = client.raw.getSessionId();
  client.states.length = 0;
  console.log('restart');
  assert.strictEqual((await answers.next()).value, 'restarted');
  await until('the client comes back', () => client.states.includes('SYNC_CONNECTED'));
  assert.strictEqual(client.states[0], 'DISCONNECTED');
  assert.ok(client.raw.getSessionId().equals(session), 'the session is another');
  assert.ok((await client.exists(`${path}/e`))[0].ephemeralOwner.equals(session), 'the ephemeral has another owner');
  await changed.expectNone();
  const other = await connect();
  await other.setData(path, Buffer.from('after'), -1);
  await other.remove(`${path}/goes`, -1);
  await other.create(`${path}/new`);
  await changed.expect(`NODE_DATA_CHANGED ${path}`);
  await gone.expect(`NODE_DELETED ${path}/goes`);
  await born.expect(`NODE_CREATED ${path}/new`);
  await Promise.all([client.close(), other.close()]);
}

async function main() {
  const tests = { nodes, modes, multis, acls, one_shot_watches: oneShotWatches, restart };
  for (const [name, test] of Object.entries(tests)) {
    if (!name.includes(only)) continue;
    try {
      await test();
      console.log(`ok ${name}`);
    } catch (error) {
      console.error(error);
      console.log(`FAIL ${name}: ${String(error).replaceAll('\n', ' ')}`);
    }
  }
  for (const name of ['containers_and_ttls', 'persistent_watches']) {
    if (name.includes(only)) console.log(`skip ${name}: this client has none`);
  }
  console.log('end');
  process.exit(0);
}

main();
