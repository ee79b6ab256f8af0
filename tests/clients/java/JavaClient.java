// What programs do with ZooKeeper's own Java client. Arguments: host:port, and a part of the names of the tests to run.

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.Watcher.WatcherType;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooDefs.Perms;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;

final class JavaClient {
    private static final int SESSION_MS = 10_000;
    private static final int EVENT_LIMIT_MS = 15_000;
    private static final int QUIET_MS = 200;
    // Nobody listens there.
    private static final String NOWHERE = "127.0.0.1:1";
    private static String address;
    private static int count;

    /** A watcher that keeps its events. */
    static final class Events implements Watcher {
        final BlockingQueue<WatchedEvent> queue = new LinkedBlockingQueue<>();

        @Override
        public void process(WatchedEvent event) {
            queue.add(event);
        }

        /** The next event of a znode, or of the session's state, as text. */
        String next() throws InterruptedException {
            WatchedEvent event = queue.poll(EVENT_LIMIT_MS, TimeUnit.MILLISECONDS);
            Suite.check(event != null, "no event came");
            return event.getType() == EventType.None ? event.getState().toString() : event.getType() + " " + event.getPath();
        }

        void expect(String... expected) throws InterruptedException {
            for (String one : expected) {
                Suite.equal(next(), one);
            }
        }

        void expectNone() throws InterruptedException {
            Suite.equal(queue.poll(QUIET_MS, TimeUnit.MILLISECONDS), null);
        }
    }

    static ZooKeeper connect(Events events) throws Exception {
        ZooKeeper client = new ZooKeeper(address, SESSION_MS, events);
        events.expect("SyncConnected");
        return client;
    }

    static ZooKeeper connect() throws Exception {
        return connect(new Events());
    }

    /** Catches up with what other clients were answered: ZooKeeper promises no common view without. */
    static void sync(ZooKeeper client, String path) throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        client.sync(path, (code, same, context) -> done.countDown(), null);
        Suite.check(done.await(EVENT_LIMIT_MS, TimeUnit.MILLISECONDS), "sync is not answered");
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String create(ZooKeeper client, String path, CreateMode mode) throws Exception {
        return client.create(path, bytes("data"), Ids.OPEN_ACL_UNSAFE, mode);
    }

    /** A node for one test. */
    static String root(ZooKeeper client) throws Exception {
        return create(client, "/java-" + System.nanoTime() + "-" + count++, CreateMode.PERSISTENT);
    }

    static void nodes() throws Exception {
        try (ZooKeeper client = connect()) {
            String path = root(client);
            Stat stat = new Stat();
            Suite.equal(new String(client.getData(path, false, stat)), "data");
            Suite.equal(stat.getVersion(), 0);
            Suite.equal(client.setData(path, bytes("new"), 0).getVersion(), 1);
            Suite.raises(KeeperException.BadVersionException.class, () -> client.setData(path, bytes(""), 0));
            Suite.raises(KeeperException.NodeExistsException.class, () -> create(client, path, CreateMode.PERSISTENT));
            create(client, path + "/b", CreateMode.PERSISTENT);
            create(client, path + "/a", CreateMode.PERSISTENT);
            Suite.equal(client.getChildren(path, false).stream().sorted().collect(Collectors.toList()), Arrays.asList("a", "b"));
            Suite.equal(client.getAllChildrenNumber(path), 2);
            Suite.raises(KeeperException.NotEmptyException.class, () -> { client.delete(path, -1); return null; });
            Suite.raises(KeeperException.BadVersionException.class, () -> { client.delete(path + "/a", 5); return null; });
            client.delete(path + "/a", 0);
            Suite.equal(client.exists(path + "/a", false), null);
            Suite.raises(KeeperException.NoNodeException.class, () -> client.getData(path + "/a", false, null));
        }
    }

    static void modes() throws Exception {
        String path;
        try (ZooKeeper watcher = connect()) {
            path = root(watcher);
            try (ZooKeeper client = connect()) {
                for (CreateMode mode : CreateMode.values()) {
                    Stat stat = new Stat();
                    long ttl = mode.isTTL() ? 3_600_000 : -1;
                    String asked = path + "/" + mode + "-";
                    String created = client.create(asked, bytes("x"), Ids.OPEN_ACL_UNSAFE, mode, stat, ttl);
                    Suite.equal(created.length(), asked.length() + (mode.isSequential() ? 10 : 0));
                    Suite.equal(stat.getEphemeralOwner() == client.getSessionId(), mode.isEphemeral());
                }
                Suite.equal(client.getEphemerals(path).size(), 2);
                String parent = path + "/" + CreateMode.EPHEMERAL + "-";
                Suite.raises(
                    KeeperException.NoChildrenForEphemeralsException.class,
                    () -> create(client, parent + "/x", CreateMode.PERSISTENT));
            }
            sync(watcher, path);
            List<String> left = watcher.getChildren(path, false);
            Suite.equal(left.size(), CreateMode.values().length - 2);
            Suite.check(left.stream().noneMatch(name -> name.startsWith("EPHEMERAL")), "ephemerals outlive their session: " + left);
        }
    }

    static void containersAndTtls() throws Exception {
        try (ZooKeeper client = connect()) {
            String path = root(client);
            Stat stat = new Stat();
            client.create(path + "/ttl", bytes(""), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, stat, 100);
            client.create(path + "/parent", bytes(""), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, stat, 100);
            create(client, path + "/parent/child", CreateMode.PERSISTENT);
            create(client, path + "/container", CreateMode.CONTAINER);
            create(client, path + "/container/child", CreateMode.PERSISTENT);
            create(client, path + "/never-used", CreateMode.CONTAINER);
            client.delete(path + "/container/child", -1);
            Suite.until("TTL node and container go", () ->
                client.exists(path + "/ttl", false) == null && client.exists(path + "/container", false) == null);
            // Whatever has children stays, and so does a container that never had one.
            Suite.check(client.exists(path + "/parent", false) != null, "a TTL node with a child goes");
            Suite.check(client.exists(path + "/never-used", false) != null, "a container without a past goes");
        }
    }

    static void multis() throws Exception {
        try (ZooKeeper client = connect()) {
            String path = root(client);
            List<OpResult> results = client.multi(Arrays.asList(
                Op.create(path + "/a", bytes("1"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
                Op.create(path + "/s-", bytes(""), Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL),
                Op.check(path, 0),
                Op.setData(path + "/a", bytes("2"), 0),
                Op.delete(path + "/s-0000000001", -1)));
            Suite.equal(results.size(), 5);
            try {
                client.multi(Arrays.asList(Op.setData(path + "/a", bytes("3"), -1), Op.check(path + "/none", -1), Op.delete(path, -1)));
                throw new AssertionError("a multi with a failing check succeeds");
            } catch (KeeperException.NoNodeException fault) {
                List<Integer> codes = fault.getResults().stream()
                    .map(result -> ((OpResult.ErrorResult) result).getErr()).collect(Collectors.toList());
                Suite.equal(codes, Arrays.asList(0, KeeperException.Code.NONODE.intValue(),
                    KeeperException.Code.RUNTIMEINCONSISTENCY.intValue()));
            }
            List<OpResult> read = client.multi(Arrays.asList(Op.getData(path + "/a"), Op.getChildren(path), Op.getData("/none")));
            Suite.equal(new String(((OpResult.GetDataResult) read.get(0)).getData()), "2");
            Suite.equal(((OpResult.GetChildrenResult) read.get(1)).getChildren(), Arrays.asList("a"));
            Suite.equal(((OpResult.ErrorResult) read.get(2)).getErr(), KeeperException.Code.NONODE.intValue());
        }
    }

    static void acls() throws Exception {
        try (ZooKeeper owner = connect(); ZooKeeper other = connect()) {
            String path = root(owner) + "/secret";
            owner.addAuthInfo("digest", bytes("u:p"));
            owner.create(path, bytes("secret"), Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
            sync(other, path);
            Suite.raises(KeeperException.NoAuthException.class, () -> other.getData(path, false, null));
            other.addAuthInfo("digest", bytes("u:p"));
            Suite.equal(new String(other.getData(path, false, null)), "secret");
            Suite.check(other.whoAmI().stream().anyMatch(who -> who.getAuthScheme().equals("digest")), "whoAmI knows no digest");
            Stat stat = new Stat();
            Suite.equal(owner.getACL(path, stat).get(0).getId().getScheme(), "digest");
            List<ACL> read = Collections.singletonList(new ACL(Perms.READ, Ids.ANYONE_ID_UNSAFE));
            Suite.equal(owner.setACL(path, read, stat.getAversion()).getAversion(), 1);
            Suite.raises(KeeperException.NoAuthException.class, () -> owner.setData(path, bytes(""), -1));
            List<ACL> bad = Collections.singletonList(new ACL(Perms.ALL, new Id("digest", "no-colon")));
            Suite.raises(KeeperException.InvalidACLException.class,
                () -> owner.create(path + "/x", bytes(""), bad, CreateMode.PERSISTENT));
        }
    }

    static void oneShotWatches() throws Exception {
        try (ZooKeeper client = connect(); ZooKeeper other = connect()) {
            String path = root(client);
            Events data = new Events(), children = new Events(), exists = new Events();
            client.getData(path, data, null);
            client.getChildren(path, children);
            client.exists(path + "/a", exists);
            other.setData(path, bytes("1"), -1);
            other.setData(path, bytes("2"), -1);
            data.expect("NodeDataChanged " + path);
            create(other, path + "/a", CreateMode.PERSISTENT);
            exists.expect("NodeCreated " + path + "/a");
            children.expect("NodeChildrenChanged " + path);
            other.delete(path + "/a", -1);
            data.expectNone();
            children.expectNone();
            exists.expectNone();
        }
    }

    static void persistentWatches() throws Exception {
        // The client 3.8.0 mixes up the events of both modes in one session, so each mode has its own.
        try (ZooKeeper client = connect(); ZooKeeper second = connect(); ZooKeeper other = connect()) {
            String path = root(client);
            sync(second, path);
            Events flat = new Events(), deep = new Events();
            client.addWatch(path, flat, AddWatchMode.PERSISTENT);
            second.addWatch(path, deep, AddWatchMode.PERSISTENT_RECURSIVE);
            create(other, path + "/a", CreateMode.PERSISTENT);
            create(other, path + "/a/b", CreateMode.PERSISTENT);
            other.setData(path + "/a/b", bytes("1"), -1);
            other.setData(path, bytes("1"), -1);
            other.setData(path, bytes("2"), -1);
            other.delete(path + "/a/b", -1);
            String[] changed = {"NodeChildrenChanged " + path, "NodeDataChanged " + path, "NodeDataChanged " + path};
            flat.expect(changed);
            deep.expect("NodeCreated " + path + "/a", "NodeCreated " + path + "/a/b", "NodeDataChanged " + path + "/a/b");
            deep.expect("NodeDataChanged " + path, "NodeDataChanged " + path, "NodeDeleted " + path + "/a/b");
            second.removeWatches(path, deep, WatcherType.Any, false);
            deep.expect("PersistentWatchRemoved " + path);
            other.setData(path, bytes("3"), -1);
            flat.expect("NodeDataChanged " + path);
            deep.expectNone();
            Suite.raises(KeeperException.NoWatcherException.class,
                () -> { client.removeWatches(path + "/a", flat, WatcherType.Any, false); return null; });
        }
    }

    static void restart() throws Exception {
        Events states = new Events();
        try (ZooKeeper client = connect(states)) {
            String path = root(client);
            create(client, path + "/e", CreateMode.EPHEMERAL);
            create(client, path + "/changes", CreateMode.PERSISTENT);
            create(client, path + "/goes", CreateMode.PERSISTENT);
            Events data = new Events(), gone = new Events(), born = new Events(), deep = new Events();
            client.getData(path + "/changes", data, null);
            client.getData(path + "/goes", gone, null);
            client.exists(path + "/new", born);
            client.addWatch(path, deep, AddWatchMode.PERSISTENT_RECURSIVE);
            long session = client.getSessionId();
            Suite.restartServer();
            states.expect("Disconnected", "SyncConnected");
            Suite.equal(client.getSessionId(), session);
            Suite.equal(client.exists(path + "/e", false).getEphemeralOwner(), session);
            for (Events events : Arrays.asList(data, gone, born, deep)) {
                events.expect("Disconnected", "SyncConnected");
                events.expectNone();
            }
            try (ZooKeeper other = connect()) {
                other.setData(path + "/changes", bytes("after"), -1);
                other.delete(path + "/goes", -1);
                create(other, path + "/new", CreateMode.PERSISTENT);
            }
            data.expect("NodeDataChanged " + path + "/changes");
            gone.expect("NodeDeleted " + path + "/goes");
            born.expect("NodeCreated " + path + "/new");
            deep.expect("NodeDataChanged " + path + "/changes", "NodeDeleted " + path + "/goes", "NodeCreated " + path + "/new");
        }
    }

    static void sessions() throws Exception {
        Events events = new Events();
        ZooKeeper client = connect(events);
        Suite.equal(client.getSessionTimeout(), SESSION_MS);
        String path = create(client, root(client) + "/e", CreateMode.EPHEMERAL);
        // A second connection takes the session over with its password, while the first client cannot take it back.
        client.updateServerList(NOWHERE);
        ZooKeeper mover = new ZooKeeper(address, SESSION_MS, new Events(), client.getSessionId(), client.getSessionPasswd());
        Suite.until("the session moves", () -> mover.getState() == ZooKeeper.States.CONNECTED);
        sync(mover, path);
        Suite.equal(mover.exists(path, false).getEphemeralOwner(), client.getSessionId());
        mover.close();
        client.updateServerList(address);
        Suite.until("the first client learns that its session is closed", () -> client.getState() == ZooKeeper.States.CLOSED);
        try (ZooKeeper other = connect()) {
            sync(other, path);
            Suite.equal(other.exists(path, false), null);
        }
        Events expired = new Events();
        ZooKeeper late = new ZooKeeper(address, SESSION_MS, expired, client.getSessionId(), client.getSessionPasswd());
        expired.expect(KeeperState.Expired.toString());
        late.close();
    }

    public static void main(String[] arguments) {
        address = arguments[0];
        new Suite(arguments[1])
            .add("nodes", JavaClient::nodes)
            .add("modes", JavaClient::modes)
            .add("containers_and_ttls", JavaClient::containersAndTtls)
            .add("multis", JavaClient::multis)
            .add("acls", JavaClient::acls)
            .add("one_shot_watches", JavaClient::oneShotWatches)
            .add("persistent_watches", JavaClient::persistentWatches)
            .add("sessions", JavaClient::sessions)
            .add("restart", JavaClient::restart)
            .run();
    }
}
