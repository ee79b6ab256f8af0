//! What programs do with the crate zookeeper-client. Arguments: host:port, and a part of the names of the tests to run.
//!
//! A test that fails panics in a task of its own; what this prints is read by the suite that started it. It lives outside of
//! the workspace and knows nothing of the server.

use std::future::Future;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use zookeeper_client::{
    Acl, Acls, AddWatchMode, AuthId, Client, CreateMode, CreateOptions, Error, EventType, MultiReadResult, Permission,
    PersistentWatcher, SessionState,
};

const SESSION: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(30);
const QUIET: Duration = Duration::from_millis(200);
const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
const CONTAINER: CreateOptions<'static> = CreateMode::Container.with_acls(Acls::anyone_all());

async fn connect(address: &str) -> Client {
    Client::connector().with_session_timeout(SESSION).connect(address).await.expect("the client connects")
}

/// A node for one test.
async fn root(client: &Client) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970").as_nanos();
    let path = format!("/rust-{now}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    client.create(&path, b"data", &PERSISTENT).await.expect("the root is created");
    path
}

/// Waits until the condition holds.
async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, wait).await.is_ok(), "{what}: not within {LIMIT:?}");
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"))
}

async fn nodes(address: String) {
    let client = connect(&address).await;
    let path = root(&client).await;
    let (data, stat) = client.get_data(&path).await.expect("data");
    assert_eq!((data.as_slice(), stat.version), (b"data".as_slice(), 0));
    assert_eq!(client.set_data(&path, b"new", Some(0)).await.expect("set").version, 1);
    assert_eq!(client.set_data(&path, b"", Some(0)).await, Err(Error::BadVersion));
    assert_eq!(client.create(&path, b"", &PERSISTENT).await.unwrap_err(), Error::NodeExists);
    client.mkdir(&format!("{path}/deep/er"), &PERSISTENT).await.expect("mkdir");
    assert_eq!(client.list_children(&path).await, Ok(vec!["deep".to_owned()]));
    assert_eq!(client.get_children(&path).await.expect("children").1.num_children, 1);
    assert_eq!(client.count_descendants_number(&path).await, Ok(2));
    assert_eq!(client.delete(&path, None).await, Err(Error::NotEmpty));
    assert_eq!(client.delete(&format!("{path}/deep/er"), Some(7)).await, Err(Error::BadVersion));
    client.sync(&path).await.expect("sync");
    for gone in ["/deep/er", "/deep", ""] {
        assert_eq!(client.delete(&format!("{path}{gone}"), None).await, Ok(()));
    }
    assert_eq!(client.check_stat(&path).await, Ok(None));
    assert_eq!(client.get_data(&path).await.unwrap_err(), Error::NoNode);
}

async fn modes(address: String) {
    let (watcher, client) = (connect(&address).await, connect(&address).await);
    let path = root(&watcher).await;
    let plain = [CreateMode::Persistent, CreateMode::PersistentSequential, CreateMode::Ephemeral];
    for mode in plain.into_iter().chain([CreateMode::EphemeralSequential, CreateMode::Container]) {
        let options = mode.with_acls(Acls::anyone_all());
        let (stat, sequence) = client.create(&format!("{path}/{mode:?}-"), b"x", &options).await.expect("create");
        let ephemeral = matches!(mode, CreateMode::Ephemeral | CreateMode::EphemeralSequential);
        assert_eq!(stat.ephemeral_owner == client.session_id().0, ephemeral, "{mode:?}");
        assert_eq!(sequence.into_i64() >= 0, format!("{mode:?}").ends_with("Sequential"), "{mode:?}");
    }
    for mode in [CreateMode::Persistent, CreateMode::PersistentSequential] {
        let options = mode.with_acls(Acls::anyone_all()).with_ttl(Duration::from_secs(3600));
        client.create(&format!("{path}/ttl-{mode:?}-"), b"x", &options).await.expect("create with a TTL");
    }
    assert_eq!(client.list_ephemerals(&path).await.expect("ephemerals").len(), 2);
    let below = format!("{path}/Ephemeral-/x");
    assert_eq!(client.create(&below, b"", &PERSISTENT).await.unwrap_err(), Error::NoChildrenForEphemerals);
    drop(client);
    until("the ephemerals go", || async { watcher.list_children(&path).await.expect("children").len() == 5 }).await;
}

async fn containers_and_ttls(address: String) {
    let client = connect(&address).await;
    let path = root(&client).await;
    let (ttl, container) = (format!("{path}/ttl"), format!("{path}/container"));
    client.create(&ttl, b"", &PERSISTENT.with_ttl(Duration::from_millis(100))).await.expect("create with a TTL");
    client.create(&container, b"", &CONTAINER).await.expect("create a container");
    client.create(&format!("{container}/child"), b"", &PERSISTENT).await.expect("create in it");
    client.delete(&format!("{container}/child"), None).await.expect("delete");
    until("TTL node and container go", || async {
        client.check_stat(&ttl).await == Ok(None) && client.check_stat(&container).await == Ok(None)
    })
    .await;
}

async fn multis(address: String) {
    let client = connect(&address).await;
    let path = root(&client).await;
    let child = format!("{path}/a");
    let mut good = client.new_multi_writer();
    good.add_create(&child, b"1", &PERSISTENT).expect("an operation");
    good.add_check_version(&path, 0).expect("an operation");
    good.add_set_data(&child, b"2", Some(0)).expect("an operation");
    assert_eq!(good.commit().await.expect("commit").len(), 3);
    let mut bad = client.new_multi_writer();
    bad.add_delete(&child, None).expect("an operation");
    bad.add_check_version(&path, 9).expect("an operation");
    let fault = bad.commit().await.expect_err("a multi with a failing check succeeds");
    assert_eq!(Error::from(fault), Error::BadVersion);
    let mut reads = client.new_multi_reader();
    reads.add_get_data(&child).expect("an operation");
    reads.add_get_children(&path).expect("an operation");
    reads.add_get_data("/none").expect("an operation");
    let results = reads.commit().await.expect("read");
    assert!(matches!(&results[0], MultiReadResult::Data { data, .. } if data == b"2"), "{results:?}");
    assert!(matches!(&results[1], MultiReadResult::Children { children } if children == &["a"]), "{results:?}");
    assert!(matches!(&results[2], MultiReadResult::Error { err: Error::NoNode }), "{results:?}");
}

async fn acls(address: String) {
    let (owner, other) = (connect(&address).await, connect(&address).await);
    let path = format!("{}/secret", root(&owner).await);
    owner.auth("digest", b"u:p").await.expect("auth");
    let creator = CreateMode::Persistent.with_acls(Acls::creator_all());
    owner.create(&path, b"secret", &creator).await.expect("create");
    // ZooKeeper promises no common view of two clients without.
    other.sync(&path).await.expect("sync");
    assert_eq!(other.get_data(&path).await.unwrap_err(), Error::NoAuth);
    other.auth("digest", b"u:p").await.expect("auth");
    assert_eq!(other.get_data(&path).await.expect("data").0, b"secret");
    assert!(owner.list_auth_users().await.expect("users").iter().any(|user| user.scheme() == "digest"));
    let (acl, stat) = owner.get_acl(&path).await.expect("ACL");
    assert_eq!(acl[0].scheme(), "digest");
    let read = [Acl::new(Permission::READ, AuthId::new("world", "anyone"))];
    assert_eq!(owner.set_acl(&path, &read, Some(stat.aversion)).await.expect("set ACL").aversion, 1);
    assert_eq!(owner.set_data(&path, b"", None).await, Err(Error::NoAuth));
}

async fn one_shot_watches(address: String) {
    let (client, other) = (connect(&address).await, connect(&address).await);
    let path = root(&client).await;
    let child = format!("{path}/a");
    let (_, _, data) = client.get_and_watch_data(&path).await.expect("data");
    let (_, children) = client.list_and_watch_children(&path).await.expect("children");
    let (_, exists) = client.check_and_watch_stat(&child).await.expect("stat");
    let (_, removed) = client.check_and_watch_stat(&format!("{path}/b")).await.expect("stat");
    drop(removed);
    let changed = other.set_data(&path, b"1", None).await.expect("set");
    other.set_data(&path, b"2", None).await.expect("set");
    other.create(&child, b"", &PERSISTENT).await.expect("create");
    for (watcher, event, node) in [
        (data, EventType::NodeDataChanged, &path),
        (exists, EventType::NodeCreated, &child),
        (children, EventType::NodeChildrenChanged, &path),
    ] {
        let got = within("an event", watcher.changed()).await;
        assert_eq!((got.event_type, &got.path), (event, node));
        // Events of servers before 3.9 have no zxid.
        if event == EventType::NodeDataChanged {
            assert_eq!(got.zxid, changed.mzxid);
        }
    }
}

/// Takes events and compares them.
async fn expect(watcher: &mut PersistentWatcher, expected: &[(EventType, &str)]) {
    for (event, path) in expected {
        let got = within("an event", watcher.changed()).await;
        assert_eq!((got.event_type, got.path.as_str()), (*event, *path));
    }
}

async fn persistent_watches(address: String) {
    let (client, other) = (connect(&address).await, connect(&address).await);
    let path = root(&client).await;
    let (child, deep) = (format!("{path}/a"), format!("{path}/a/b"));
    let mut flat = client.watch(&path, AddWatchMode::Persistent).await.expect("watch");
    let mut recursive = client.watch(&path, AddWatchMode::PersistentRecursive).await.expect("watch");
    other.create(&child, b"", &PERSISTENT).await.expect("create");
    other.create(&deep, b"", &PERSISTENT).await.expect("create");
    other.set_data(&path, b"1", None).await.expect("set");
    other.set_data(&path, b"2", None).await.expect("set");
    other.delete(&deep, None).await.expect("delete");
    let twice = (EventType::NodeDataChanged, path.as_str());
    expect(&mut flat, &[(EventType::NodeChildrenChanged, &path), twice, twice]).await;
    let born = [(EventType::NodeCreated, child.as_str()), (EventType::NodeCreated, deep.as_str())];
    expect(&mut recursive, &[born[0], born[1], twice, twice, (EventType::NodeDeleted, &deep)]).await;
    drop(recursive);
    other.set_data(&path, b"3", None).await.expect("set");
    expect(&mut flat, &[twice]).await;
    assert!(tokio::time::timeout(QUIET, flat.changed()).await.is_err(), "an event too many");
}

async fn restart(address: String) {
    let client = connect(&address).await;
    let path = root(&client).await;
    let (node, goes, new) = (format!("{path}/e"), format!("{path}/goes"), format!("{path}/new"));
    client.create(&node, b"", &EPHEMERAL).await.expect("create");
    client.create(&goes, b"", &PERSISTENT).await.expect("create");
    let (_, _, changed) = client.get_and_watch_data(&path).await.expect("data");
    let (_, gone) = client.check_and_watch_stat(&goes).await.expect("stat");
    let (_, born) = client.check_and_watch_stat(&new).await.expect("stat");
    let mut deep = client.watch(&path, AddWatchMode::PersistentRecursive).await.expect("watch");
    let mut states = client.state_watcher();
    let session = client.session_id();
    say("restart");
    let answer = tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await.expect("the reader ends");
    assert_eq!(answer.expect("a line").expect("readable"), "restarted");
    while within("the client comes back", states.changed()).await != SessionState::SyncConnected {}
    assert_eq!(client.session_id(), session);
    assert_eq!(
        client.check_stat(&node).await.expect("stat").expect("the ephemeral is there").ephemeral_owner,
        session.0
    );
    let other = connect(&address).await;
    other.set_data(&path, b"after", None).await.expect("set");
    other.delete(&goes, None).await.expect("delete");
    other.create(&new, b"", &PERSISTENT).await.expect("create");
    let expected =
        [(EventType::NodeDataChanged, path.as_str()), (EventType::NodeDeleted, &goes), (EventType::NodeCreated, &new)];
    for (watcher, (event, path)) in [changed, gone, born].into_iter().zip(expected) {
        let got = within("an event", watcher.changed()).await;
        assert_eq!((got.event_type, got.path.as_str()), (event, path));
    }
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let got = within("an event", deep.changed()).await;
        if got.event_type != EventType::Session {
            seen.push((got.event_type, got.path));
        }
    }
    assert!(seen.iter().map(|(event, path)| (*event, path.as_str())).eq(expected), "{seen:?}");
}

fn say(line: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "{line}").and_then(|()| output.flush()).expect("the suite reads");
}

/// Runs a test in a task of its own and says how it ended.
async fn run<F: Future<Output = ()> + Send + 'static>(name: &str, test: impl FnOnce(String) -> F) {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().expect("the address is the first argument");
    if !name.contains(&arguments.next().unwrap_or_default()) {
        return;
    }
    match tokio::spawn(test(address)).await {
        Ok(()) => say(&format!("ok {name}")),
        Err(fault) => say(&format!("FAIL {name}: {}", fault.to_string().replace('\n', " "))),
    }
}

#[tokio::main]
async fn main() {
    run("nodes", nodes).await;
    run("modes", modes).await;
    run("containers_and_ttls", containers_and_ttls).await;
    run("multis", multis).await;
    run("acls", acls).await;
    run("one_shot_watches", one_shot_watches).await;
    run("persistent_watches", persistent_watches).await;
    run("restart", restart).await;
    say("end");
}
