// Curator's recipes with several clients of its framework. Arguments: host:port, and a part of the names of the tests to run.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.NodeCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryOneTime;
import org.apache.curator.retry.RetryNTimes;
import org.apache.curator.utils.CloseableUtils;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

final class CuratorRecipes {
    private static final int SESSION_MS = 8_000;
    private static final int CONNECT_MS = 15_000;
    private static final int THREADS = 4;
    // Nobody listens there.
    private static final String NOWHERE = "127.0.0.1:1";
    private static String address;
    private static int count;

    /** The clients of one test, closed with it. */
    static final class Clients implements AutoCloseable {
        final List<CuratorFramework> all = new ArrayList<>();
        final String path = "/curator-" + System.nanoTime() + "-" + count++;

        CuratorFramework one() {
            return started(CuratorFrameworkFactory.builder());
        }

        CuratorFramework started(CuratorFrameworkFactory.Builder builder) {
            CuratorFramework client = builder.connectString(address).sessionTimeoutMs(SESSION_MS)
                .connectionTimeoutMs(CONNECT_MS).retryPolicy(new RetryNTimes(20, 250)).build();
            client.start();
            all.add(client);
            return client;
        }

        @Override
        public void close() {
            all.forEach(CloseableUtils::closeQuietly);
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    // Wherever a client reads what another was answered, it syncs first: ZooKeeper promises no common view without.

    /** Ends the session of a client as if the server had let it expire, while the client cannot reach the server. */
    static void endSession(CuratorFramework client) throws Exception {
        ZooKeeper own = client.getZookeeperClient().getZooKeeper();
        own.updateServerList(NOWHERE);
        ZooKeeper copy = new ZooKeeper(address, SESSION_MS, event -> { }, own.getSessionId(), own.getSessionPasswd());
        Suite.until("the copy connects", () -> copy.getState() == ZooKeeper.States.CONNECTED);
        copy.close();
        own.updateServerList(address);
    }

    /** Runs the task in several threads and waits for all. */
    static void inThreads(int threads, Suite.Test task) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            List<Future<?>> running = new ArrayList<>();
            for (int thread = 0; thread < threads; thread++) {
                running.add(pool.submit(() -> { task.run(); return null; }));
            }
            for (Future<?> one : running) {
                one.get(Suite.WAIT_LIMIT_MS, TimeUnit.MILLISECONDS);
            }
        } finally {
            pool.shutdownNow();
        }
    }

    static void framework() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework client = clients.one();
            String deep = clients.path + "/a/b/c";
            client.create().creatingParentContainersIfNeeded().forPath(deep, bytes("1"));
            Suite.equal(text(client.getData().forPath(deep)), "1");
            Suite.equal(client.setData().withVersion(0).forPath(deep, bytes("2")).getVersion(), 1);
            Suite.raises(KeeperException.BadVersionException.class,
                () -> client.setData().withVersion(0).forPath(deep, bytes("3")));
            client.create().orSetData().forPath(deep, bytes("4"));
            Suite.equal(text(client.getData().forPath(deep)), "4");
            String protectedPath = client.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL)
                .forPath(clients.path + "/p-");
            Suite.check(protectedPath.contains("_c_"), protectedPath);
            client.create().withTtl(3_600_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(clients.path + "/ttl");
            CountDownLatch answered = new CountDownLatch(1);
            client.getChildren().inBackground((same, event) -> answered.countDown()).forPath(clients.path);
            Suite.check(answered.await(10, TimeUnit.SECONDS), "no answer in the background");
            Suite.equal(new TreeSet<>(client.usingNamespace(clients.path.substring(1)).getChildren().forPath("/a")),
                Collections.singleton("b"));
            client.delete().guaranteed().deletingChildrenIfNeeded().forPath(clients.path);
            Suite.equal(client.checkExists().forPath(clients.path), null);
        }
    }

    static void transactions() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework client = clients.one();
            client.create().forPath(clients.path);
            String path = clients.path + "/a";
            List<CuratorTransactionResult> results = client.transaction().forOperations(
                client.transactionOp().create().forPath(path, bytes("1")),
                client.transactionOp().check().withVersion(0).forPath(path),
                client.transactionOp().setData().withVersion(0).forPath(path, bytes("2")));
            Suite.equal(results.get(2).getResultStat().getVersion(), 1);
            Suite.raises(KeeperException.BadVersionException.class, () -> client.transaction().forOperations(
                client.transactionOp().delete().forPath(path),
                client.transactionOp().check().withVersion(7).forPath(clients.path)));
            Suite.equal(text(client.getData().forPath(path)), "2");
        }
    }

    static void acls() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework owner = clients.started(CuratorFrameworkFactory.builder().authorization("digest", bytes("u:p")));
            CuratorFramework other = clients.one();
            owner.create().withACL(Ids.CREATOR_ALL_ACL).forPath(clients.path, bytes("secret"));
            other.sync().forPath(clients.path);
            Suite.raises(KeeperException.NoAuthException.class, () -> other.getData().forPath(clients.path));
            Suite.equal(owner.getACL().forPath(clients.path).get(0).getId().getScheme(), "digest");
            // The identity is proved again with each new session.
            endSession(owner);
            Suite.equal(text(owner.getData().forPath(clients.path)), "secret");
        }
    }

    /** Increments a number under a lock without looking at versions: any two at a time would lose one. */
    static void increments(Clients clients, InterProcessLock[] locks) throws Exception {
        CuratorFramework client = clients.one();
        String number = clients.path + "-number";
        client.create().forPath(number, bytes("0"));
        AtomicInteger next = new AtomicInteger();
        int rounds = 10;
        inThreads(locks.length, () -> {
            InterProcessLock lock = locks[next.getAndIncrement()];
            for (int round = 0; round < rounds; round++) {
                Suite.check(lock.acquire(20, TimeUnit.SECONDS), "the lock cannot be had");
                int value = Integer.parseInt(text(client.getData().forPath(number)));
                client.setData().forPath(number, bytes(Integer.toString(value + 1)));
                lock.release();
            }
        });
        Suite.equal(text(client.getData().forPath(number)), Integer.toString(locks.length * rounds));
    }

    static void mutex() throws Exception {
        try (Clients clients = new Clients()) {
            InterProcessLock[] locks = new InterProcessLock[THREADS];
            Arrays.setAll(locks, index -> new InterProcessMutex(clients.one(), clients.path));
            increments(clients, locks);
        }
    }

    static void semaphoreMutex() throws Exception {
        try (Clients clients = new Clients()) {
            InterProcessLock[] locks = new InterProcessLock[THREADS];
            Arrays.setAll(locks, index -> new InterProcessSemaphoreMutex(clients.one(), clients.path));
            increments(clients, locks);
        }
    }

    static void multiLock() throws Exception {
        try (Clients clients = new Clients()) {
            InterProcessLock[] locks = new InterProcessLock[THREADS];
            Arrays.setAll(locks, index -> new InterProcessMultiLock(
                clients.one(), Arrays.asList(clients.path + "/x", clients.path + "/y")));
            increments(clients, locks);
        }
    }

    static void lockIsReentrantAndRevocable() throws Exception {
        try (Clients clients = new Clients()) {
            InterProcessMutex held = new InterProcessMutex(clients.one(), clients.path);
            InterProcessMutex wanted = new InterProcessMutex(clients.one(), clients.path);
            CountDownLatch asked = new CountDownLatch(1);
            held.makeRevocable(lock -> asked.countDown());
            held.acquire();
            held.acquire();
            held.release();
            Suite.check(!wanted.acquire(300, TimeUnit.MILLISECONDS), "two hold the lock");
            CuratorFramework client = clients.one();
            Revoker.attemptRevoke(client, held.getParticipantNodes().iterator().next());
            Suite.check(asked.await(10, TimeUnit.SECONDS), "the holder is not asked to release");
            held.release();
            Suite.check(wanted.acquire(10, TimeUnit.SECONDS), "the lock is not free");
        }
    }

    static void readWriteLock() throws Exception {
        try (Clients clients = new Clients()) {
            InterProcessReadWriteLock first = new InterProcessReadWriteLock(clients.one(), clients.path);
            InterProcessReadWriteLock second = new InterProcessReadWriteLock(clients.one(), clients.path);
            first.readLock().acquire();
            Suite.check(second.readLock().acquire(10, TimeUnit.SECONDS), "a reader locks out a reader");
            second.readLock().release();
            Suite.check(!second.writeLock().acquire(300, TimeUnit.MILLISECONDS), "a writer beside a reader");
            first.readLock().release();
            Suite.check(second.writeLock().acquire(10, TimeUnit.SECONDS), "the writer is locked out");
            Suite.check(!first.readLock().acquire(300, TimeUnit.MILLISECONDS), "a reader beside a writer");
            second.writeLock().release();
        }
    }

    static void semaphore() throws Exception {
        try (Clients clients = new Clients()) {
            InterProcessSemaphoreV2 first = new InterProcessSemaphoreV2(clients.one(), clients.path, 2);
            InterProcessSemaphoreV2 second = new InterProcessSemaphoreV2(clients.one(), clients.path, 2);
            Lease one = first.acquire(), two = second.acquire();
            Suite.equal(second.acquire(300, TimeUnit.MILLISECONDS), null);
            first.returnLease(one);
            Suite.check(second.acquire(10, TimeUnit.SECONDS) != null, "the returned lease is lost");
            second.returnLease(two);
        }
    }

    static LeaderLatch leaderOf(List<LeaderLatch> latches) throws Exception {
        Suite.until("one leads", () -> latches.stream().anyMatch(LeaderLatch::hasLeadership));
        List<LeaderLatch> leaders = latches.stream().filter(LeaderLatch::hasLeadership).collect(Collectors.toList());
        Suite.equal(leaders.size(), 1);
        return leaders.get(0);
    }

    static void leaderLatch() throws Exception {
        try (Clients clients = new Clients()) {
            List<LeaderLatch> latches = new ArrayList<>();
            for (int number = 0; number < THREADS; number++) {
                LeaderLatch latch = new LeaderLatch(clients.one(), clients.path, "id-" + number);
                latch.start();
                latches.add(latch);
            }
            Suite.until("all stand", () -> latches.get(0).getParticipants().size() == THREADS);
            while (!latches.isEmpty()) {
                LeaderLatch leader = leaderOf(latches), observer = latches.get(0);
                Suite.until("all know the leader", () -> observer.getLeader().getId().equals(leader.getId()));
                latches.remove(leader);
                leader.close();
            }
        }
    }

    static void leaderLatchAfterALostSession() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework first = clients.one(), second = clients.one();
            LeaderLatch leader = new LeaderLatch(first, clients.path), successor = new LeaderLatch(second, clients.path);
            leader.start();
            Suite.check(leader.await(10, TimeUnit.SECONDS), "nobody leads");
            successor.start();
            Suite.until("both stand", () -> successor.getParticipants().size() == 2);
            endSession(first);
            Suite.check(successor.await(10, TimeUnit.SECONDS), "the successor does not lead");
            Suite.until("the first stands again", () -> successor.getParticipants().size() == 2 && !leader.hasLeadership());
            successor.close();
            Suite.check(leader.await(10, TimeUnit.SECONDS), "the first does not lead again");
            leader.close();
        }
    }

    static void leaderSelector() throws Exception {
        try (Clients clients = new Clients()) {
            AtomicInteger leading = new AtomicInteger(), most = new AtomicInteger();
            Set<String> led = ConcurrentHashMap.newKeySet();
            List<LeaderSelector> selectors = new ArrayList<>();
            for (int number = 0; number < THREADS; number++) {
                String id = "id-" + number;
                LeaderSelector selector = new LeaderSelector(clients.one(), clients.path, new LeaderSelectorListenerAdapter() {
                    @Override
                    public void takeLeadership(CuratorFramework client) {
                        most.accumulateAndGet(leading.incrementAndGet(), Math::max);
                        led.add(id);
                        leading.decrementAndGet();
                    }
                });
                selector.setId(id);
                selector.autoRequeue();
                selector.start();
                selectors.add(selector);
            }
            Suite.until("each leads in turn", () -> led.size() == THREADS);
            selectors.forEach(LeaderSelector::close);
            Suite.equal(most.get(), 1);
        }
    }

    static void barriers() throws Exception {
        try (Clients clients = new Clients()) {
            DistributedBarrier barrier = new DistributedBarrier(clients.one(), clients.path + "/single");
            CuratorFramework other = clients.one();
            DistributedBarrier waiting = new DistributedBarrier(other, clients.path + "/single");
            barrier.setBarrier();
            other.sync().forPath(clients.path);
            Suite.check(!waiting.waitOnBarrier(300, TimeUnit.MILLISECONDS), "the barrier does not hold");
            barrier.removeBarrier();
            Suite.check(waiting.waitOnBarrier(10, TimeUnit.SECONDS), "the barrier does not go");
            AtomicInteger inside = new AtomicInteger();
            inThreads(THREADS, () -> {
                CuratorFramework client;
                synchronized (clients) {
                    client = clients.one();
                }
                DistributedDoubleBarrier both = new DistributedDoubleBarrier(client, clients.path + "/double", THREADS);
                inside.incrementAndGet();
                Suite.check(both.enter(20, TimeUnit.SECONDS), "cannot enter");
                Suite.equal(inside.get(), THREADS);
                Suite.check(both.leave(20, TimeUnit.SECONDS), "cannot leave");
            });
        }
    }

    /** Takes what a queue delivers. */
    static final class Taker implements QueueConsumer<String>, QueueSerializer<String> {
        final BlockingQueue<String> taken = new LinkedBlockingQueue<>();

        @Override
        public void consumeMessage(String message) {
            taken.add(message);
        }

        @Override
        public void stateChanged(CuratorFramework client, ConnectionState state) { }

        @Override
        public byte[] serialize(String item) {
            return bytes(item);
        }

        @Override
        public String deserialize(byte[] item) {
            return text(item);
        }

        String next() throws InterruptedException {
            return taken.poll(15, TimeUnit.SECONDS);
        }
    }

    static void queues() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework client = clients.one(), second = clients.one();
            SimpleDistributedQueue simple = new SimpleDistributedQueue(client, clients.path + "/simple");
            simple.offer(bytes("1"));
            simple.offer(bytes("2"));
            Suite.equal(text(new SimpleDistributedQueue(second, clients.path + "/simple").take()), "1");
            Suite.equal(text(simple.poll()), "2");
            Taker taker = new Taker();
            DistributedQueue<String> put = QueueBuilder.builder(client, null, taker, clients.path + "/queue").buildQueue();
            put.start();
            for (int number = 0; number < 20; number++) {
                put.put("item-" + number);
            }
            DistributedQueue<String> take = QueueBuilder.builder(second, taker, taker, clients.path + "/queue")
                .lockPath(clients.path + "/queue-locks").buildQueue();
            take.start();
            Set<String> taken = new TreeSet<>();
            for (int number = 0; number < 20; number++) {
                taken.add(taker.next());
            }
            Suite.equal(taken.size(), 20);
            put.close();
            take.close();
        }
    }

    static void orderedQueues() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework client = clients.one();
            Taker urgent = new Taker(), late = new Taker();
            String path = clients.path + "/priority";
            try (DistributedPriorityQueue<String> put = QueueBuilder.builder(client, null, urgent, path).buildPriorityQueue(0)) {
                put.start();
                put.put("low", 9);
                put.put("high", 1);
                put.put("middle", 5);
                put.flushPuts(10, TimeUnit.SECONDS);
            }
            try (DistributedPriorityQueue<String> take =
                    QueueBuilder.builder(client, urgent, urgent, path).buildPriorityQueue(0)) {
                take.start();
                for (String expected : Arrays.asList("high", "middle", "low")) {
                    Suite.equal(urgent.next(), expected);
                }
            }
            try (DistributedDelayQueue<String> delayed =
                    QueueBuilder.builder(client, late, late, clients.path + "/delay").buildDelayQueue()) {
                delayed.start();
                delayed.put("second", System.currentTimeMillis() + 1_000);
                delayed.put("first", System.currentTimeMillis() + 300);
                Suite.equal(late.next(), "first");
                Suite.equal(late.next(), "second");
            }
        }
    }

    static void counters() throws Exception {
        try (Clients clients = new Clients()) {
            inThreads(THREADS, () -> {
                CuratorFramework client;
                synchronized (clients) {
                    client = clients.one();
                }
                DistributedAtomicLong number =
                    new DistributedAtomicLong(client, clients.path + "/atomic", new RetryNTimes(1000, 1));
                for (int round = 0; round < 20; round++) {
                    AtomicValue<Long> value = number.increment();
                    Suite.check(value.succeeded(), "an increment gives up");
                }
            });
            CuratorFramework first = clients.one(), second = clients.one();
            first.sync().forPath(clients.path + "/atomic");
            Suite.equal(new DistributedAtomicLong(first, clients.path + "/atomic", new RetryOneTime(1)).get().postValue(),
                20L * THREADS);
            try (SharedCount one = new SharedCount(first, clients.path + "/shared", 0);
                    SharedCount two = new SharedCount(second, clients.path + "/shared", 0)) {
                one.start();
                two.start();
                one.setCount(7);
                Suite.until("the other sees the count", () -> two.getCount() == 7);
                Suite.check(two.trySetCount(two.getVersionedValue(), 8), "the count cannot be set");
                Suite.until("the first sees the count", () -> one.getCount() == 8);
            }
        }
    }

    static void curatorCache() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework client = clients.one(), other = clients.one();
            other.create().creatingParentsIfNeeded().forPath(clients.path + "/old", bytes("1"));
            client.sync().forPath(clients.path);
            List<String> events = new CopyOnWriteArrayList<>();
            CountDownLatch ready = new CountDownLatch(1);
            try (CuratorCache cache = CuratorCache.build(client, clients.path)) {
                cache.listenable().addListener(CuratorCacheListener.builder()
                    .forCreates(node -> events.add("create " + node.getPath()))
                    .forChanges((before, after) -> events.add("change " + after.getPath() + " " + text(after.getData())))
                    .forDeletes(node -> events.add("delete " + node.getPath()))
                    .forInitialized(ready::countDown).build());
                cache.start();
                Suite.check(ready.await(10, TimeUnit.SECONDS), "the cache does not fill");
                Suite.equal(cache.size(), 2);
                events.clear();
                String path = clients.path + "/new";
                other.create().forPath(path, bytes("1"));
                Suite.until("the create is seen", () -> events.contains("create " + path));
                other.setData().forPath(path, bytes("2"));
                Suite.until("the change is seen", () -> events.contains("change " + path + " 2"));
                other.create().creatingParentsIfNeeded().forPath(path + "/very/deep", bytes("3"));
                Suite.until("depth is seen", () -> events.contains("create " + path + "/very/deep"));
                other.delete().deletingChildrenIfNeeded().forPath(path);
                Suite.until("the delete is seen", () -> events.contains("delete " + path));
                Suite.equal(cache.stream().map(ChildData::getPath).collect(Collectors.toCollection(TreeSet::new)),
                    new TreeSet<>(Arrays.asList(clients.path, clients.path + "/old")));
            }
        }
    }

    static void oldCaches() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework client = clients.one(), other = clients.one();
            other.create().forPath(clients.path, bytes("0"));
            client.sync().forPath(clients.path);
            try (NodeCache node = new NodeCache(client, clients.path);
                    PathChildrenCache children = new PathChildrenCache(client, clients.path, true);
                    TreeCache tree = new TreeCache(client, clients.path)) {
                node.start(true);
                children.start(PathChildrenCache.StartMode.BUILD_INITIAL_CACHE);
                tree.start();
                for (int number = 1; number <= 10; number++) {
                    other.setData().forPath(clients.path, bytes("" + number));
                    other.create().forPath(clients.path + "/c-" + number, bytes("" + number));
                }
                other.delete().forPath(clients.path + "/c-3");
                Suite.until("the node cache follows", () -> text(node.getCurrentData().getData()).equals("10"));
                Suite.until("the children cache follows", () -> children.getCurrentData().size() == 9);
                Suite.until("the tree cache follows", () -> tree.getCurrentChildren(clients.path).size() == 9
                    && text(tree.getCurrentData(clients.path + "/c-10").getData()).equals("10"));
            }
        }
    }

    static void persistentNode() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework client = clients.one(), other = clients.one();
            String path = clients.path + "/node";
            PersistentNode node = new PersistentNode(client, CreateMode.EPHEMERAL, false, path, bytes("here"));
            node.start();
            Suite.check(node.waitForInitialCreate(10, TimeUnit.SECONDS), "the node is not created");
            other.delete().forPath(path);
            Suite.until("the deleted node comes back", () -> other.checkExists().forPath(path) != null);
            long owner = other.checkExists().forPath(path).getEphemeralOwner();
            endSession(client);
            Suite.until("the node comes back in a new session", () -> other.checkExists().forPath(path) != null
                && other.checkExists().forPath(path).getEphemeralOwner() != owner);
            node.setData(bytes("new"));
            Suite.until("the new data is there", () -> text(other.getData().forPath(path)).equals("new"));
            node.close();
            Suite.until("the closed node goes", () -> other.checkExists().forPath(path) == null);
        }
    }

    static void persistentTtlNode() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework client = clients.one(), other = clients.one();
            PersistentTtlNode node = new PersistentTtlNode(client, clients.path, 400, bytes("here"));
            node.start();
            Suite.check(node.waitForInitialCreate(10, TimeUnit.SECONDS), "the node is not created");
            String child = clients.path + "/" + PersistentTtlNode.DEFAULT_CHILD_NODE_NAME;
            Suite.until("the child is touched", () -> {
                Stat stat = other.checkExists().forPath(child);
                return stat != null && stat.getVersion() > 1;
            });
            node.close();
            Suite.until("the node goes when nobody touches it", () -> other.checkExists().forPath(clients.path) == null);
        }
    }

    static void groupMember() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework first = clients.one(), second = clients.one();
            GroupMember one = new GroupMember(first, clients.path, "one"), two = new GroupMember(second, clients.path, "two");
            one.start();
            two.start();
            Suite.until("both see both", () -> one.getCurrentMembers().size() == 2 && two.getCurrentMembers().size() == 2);
            one.setThisData(bytes("changed"));
            Suite.until("the data is seen", () -> text(two.getCurrentMembers().get("one")).equals("changed"));
            two.close();
            Suite.until("who closes is gone", () -> one.getCurrentMembers().keySet().equals(Collections.singleton("one")));
            one.close();
        }
    }

    static void persistentWatcher() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework client = clients.one(), other = clients.one();
            List<String> events = new CopyOnWriteArrayList<>();
            try (PersistentWatcher watcher = new PersistentWatcher(client, clients.path, true)) {
                watcher.getListenable().addListener(event -> events.add(event.getType() + " " + event.getPath()));
                CountDownLatch set = new CountDownLatch(1);
                watcher.getResetListenable().addListener(set::countDown);
                watcher.start();
                Suite.check(set.await(10, TimeUnit.SECONDS), "the watch is not set");
                other.create().creatingParentsIfNeeded().forPath(clients.path + "/a", bytes(""));
                endSession(client);
                Suite.until("the watch is set again", () -> {
                    other.setData().forPath(clients.path, bytes("again"));
                    return events.contains("NodeDataChanged " + clients.path);
                });
                Suite.check(events.contains("NodeCreated " + clients.path + "/a"), "no event of a new node: " + events);
            }
        }
    }

    static void restart() throws Exception {
        try (Clients clients = new Clients()) {
            CuratorFramework client = clients.one(), other = clients.one();
            String path = clients.path + "/tree";
            client.create().creatingParentsIfNeeded().forPath(path, bytes("before"));
            InterProcessMutex lock = new InterProcessMutex(client, clients.path + "/lock");
            lock.acquire();
            try (LeaderLatch latch = new LeaderLatch(client, clients.path + "/latch");
                    CuratorCache cache = CuratorCache.build(client, path);
                    PersistentNode node =
                        new PersistentNode(client, CreateMode.EPHEMERAL, false, clients.path + "/node", bytes("here"))) {
                latch.start();
                cache.start();
                node.start();
                Suite.check(latch.await(10, TimeUnit.SECONDS), "nobody leads");
                Suite.check(node.waitForInitialCreate(10, TimeUnit.SECONDS), "the node is not created");
                Suite.until("the cache fills", () -> cache.get(path).isPresent());
                long session = client.getZookeeperClient().getZooKeeper().getSessionId();
                Suite.restartServer();
                Suite.check(client.blockUntilConnected(20, TimeUnit.SECONDS), "the client does not come back");
                other.setData().forPath(path, bytes("after"));
                other.create().forPath(path + "/new", bytes("x"));
                Suite.until("the cache follows again", () -> text(cache.get(path).get().getData()).equals("after")
                    && cache.get(path + "/new").isPresent());
                Suite.equal(client.getZookeeperClient().getZooKeeper().getSessionId(), session);
                Suite.until("the leader leads again", latch::hasLeadership);
                Suite.equal(other.checkExists().forPath(clients.path + "/node").getEphemeralOwner(), session);
                Suite.check(!new InterProcessMutex(other, clients.path + "/lock").acquire(300, TimeUnit.MILLISECONDS),
                    "the lock is lost");
                lock.release();
            }
        }
    }

    public static void main(String[] arguments) {
        address = arguments[0];
        new Suite(arguments[1])
            .add("framework", CuratorRecipes::framework)
            .add("transactions", CuratorRecipes::transactions)
            .add("acls", CuratorRecipes::acls)
            .add("mutex", CuratorRecipes::mutex)
            .add("semaphore_mutex", CuratorRecipes::semaphoreMutex)
            .add("multi_lock", CuratorRecipes::multiLock)
            .add("lock_is_reentrant_and_revocable", CuratorRecipes::lockIsReentrantAndRevocable)
            .add("read_write_lock", CuratorRecipes::readWriteLock)
            .add("semaphore", CuratorRecipes::semaphore)
            .add("leader_latch", CuratorRecipes::leaderLatch)
            .add("leader_latch_after_a_lost_session", CuratorRecipes::leaderLatchAfterALostSession)
            .add("leader_selector", CuratorRecipes::leaderSelector)
            .add("barriers", CuratorRecipes::barriers)
            .add("queues", CuratorRecipes::queues)
            .add("ordered_queues", CuratorRecipes::orderedQueues)
            .add("counters", CuratorRecipes::counters)
            .add("curator_cache", CuratorRecipes::curatorCache)
            .add("old_caches", CuratorRecipes::oldCaches)
            .add("persistent_node", CuratorRecipes::persistentNode)
            .add("persistent_ttl_node", CuratorRecipes::persistentTtlNode)
            .add("group_member", CuratorRecipes::groupMember)
            .add("persistent_watcher", CuratorRecipes::persistentWatcher)
            .add("restart", CuratorRecipes::restart)
            .run();
    }
}
