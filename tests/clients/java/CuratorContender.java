// Contenders of Curator in one process, for the campaign `recipes`. Arguments: hosts, the socket of the resource, session timeout in ms.
// A line `NUMBER ACTION PATH LIMIT SECONDS` of the input is answered with `done NUMBER CODE`. Each has a session of its own meanwhile.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.data.Stat;

final class CuratorContender {
    private static final int REFUSED = 3;
    private static final int LOST = 15;
    private static final int TIMED_OUT = 19;
    private static final int RETRY_MS = 100;
    private static final int CALL_PAUSE_MS = 5;
    private static final int MORE_MS = 10_000;
    private static final ScheduledExecutorService TIMER = Executors.newScheduledThreadPool(4);
    private static final ConcurrentLinkedQueue<CuratorFramework> IDLE = new ConcurrentLinkedQueue<>();
    private static String hosts;
    private static String resource;
    private static int sessionMs;

    private CuratorContender() { }

    private static CuratorFramework client() throws Exception {
        CuratorFramework client = IDLE.poll();
        if (client == null) {
            client = CuratorFrameworkFactory.builder().connectString(hosts).sessionTimeoutMs(sessionMs)
                .connectionTimeoutMs(sessionMs).retryPolicy(new RetryForever(RETRY_MS)).build();
            client.start();
            client.blockUntilConnected();
        }
        return client;
    }

    /** Calls the resource with the token of this znode. Returns an exit code. */
    private static int use(CuratorFramework client, String number, String path) throws Exception {
        Stat stat = client.checkExists().forPath(path);
        if (stat == null) {
            return LOST;
        }
        try (SocketChannel connection = SocketChannel.open(UnixDomainSocketAddress.of(resource))) {
            while (true) {
                String call = number + " " + stat.getCzxid() + "\n";
                connection.write(ByteBuffer.wrap(call.getBytes(StandardCharsets.UTF_8)));
                ByteBuffer answer = ByteBuffer.allocate(16);
                connection.read(answer);
                String word = new String(answer.array(), 0, answer.position(), StandardCharsets.UTF_8).trim();
                if (!word.equals("go")) {
                    return word.equals("end") ? 0 : REFUSED;
                }
                Thread.sleep(CALL_PAUSE_MS);
            }
        }
    }

    private static String pathOf(InterProcessMutex mutex) throws Exception {
        Method method = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        method.setAccessible(true);
        return (String) method.invoke(mutex);
    }

    private static int lock(CuratorFramework client, String number, InterProcessMutex mutex, long limitMs) throws Exception {
        if (!mutex.acquire(limitMs, TimeUnit.MILLISECONDS)) {
            return TIMED_OUT;
        }
        try {
            return use(client, number, pathOf(mutex));
        } finally {
            mutex.release();
        }
    }

    private static int latch(CuratorFramework client, String number, String path, long limitMs) throws Exception {
        try (LeaderLatch latch = new LeaderLatch(client, path)) {
            latch.start();
            return latch.await(limitMs, TimeUnit.MILLISECONDS) ? use(client, number, latch.getOurPath()) : TIMED_OUT;
        }
    }

    // LeaderSelector is InterProcessMutex with a thread.
    private static int hold(CuratorFramework client, String number, String action, String path, int limit, long limitMs) throws Exception {
        switch (action) {
            case "lock":
                return lock(client, number, new InterProcessMutex(client, path), limitMs);
            case "read":
                return lock(client, number, new InterProcessReadWriteLock(client, path).readLock(), limitMs);
            case "write":
                return lock(client, number, new InterProcessReadWriteLock(client, path).writeLock(), limitMs);
            case "latch":
                return latch(client, number, path, limitMs);
            case "semaphore":
                Lease lease = new InterProcessSemaphoreV2(client, path, limit).acquire(limitMs, TimeUnit.MILLISECONDS);
                if (lease == null) {
                    return TIMED_OUT;
                }
                try (lease) {
                    return use(client, number, path + "/leases/" + lease.getNodeName());
                }
            default:
                DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(client, path, limit);
                if (!barrier.enter(limitMs, TimeUnit.MILLISECONDS)) {
                    barrier.leave(0, TimeUnit.MILLISECONDS);
                    return TIMED_OUT;
                }
                int code = use(client, number, path);
                return barrier.leave(limitMs, TimeUnit.MILLISECONDS) ? code : TIMED_OUT;
        }
    }

    private static void answer(String number, int code) {
        System.out.println("done " + number + " " + code);
    }

    private static void contend(String[] words) {
        int code = LOST;
        CuratorFramework client = null;
        ScheduledFuture<?> watchdog = null;
        try {
            client = client();
            long limitMs = Math.round(Double.parseDouble(words[4]) * 1000);
            CuratorFramework own = client;
            // A double barrier that is notified waits without its limit.
            watchdog = TIMER.schedule(() -> {
                own.close();
                answer(words[0], TIMED_OUT);
            }, limitMs + MORE_MS, TimeUnit.MILLISECONDS);
            code = hold(client, words[0], words[1], words[2], Integer.parseInt(words[3]), limitMs);
        } catch (Exception fault) {
            fault.printStackTrace();
        }
        if (watchdog != null && !watchdog.cancel(false)) {
            return;
        }
        if (code == 0) {
            IDLE.add(client);
        } else if (client != null) {
            client.close();
        }
        answer(words[0], code);
    }

    public static void main(String[] arguments) throws Exception {
        hosts = arguments[0];
        resource = arguments[1];
        sessionMs = Integer.parseInt(arguments[2]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            new Thread(() -> contend(words)).start();
        }
        Runtime.getRuntime().halt(0);
    }
}
