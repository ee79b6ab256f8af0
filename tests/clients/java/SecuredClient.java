// Opens a session for each line of the input, all at once, and tells what came of it: the identities that the server knows, or why
// there is no session. A line: NAME LIMIT HOST:PORT KEY=VALUE ... with keys of ZKClientConfig, and the milliseconds
// after which there is none. An answer: result NAME OUTCOME.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.ZKClientConfig;

final class SecuredClient {
    private static final int SESSION_MS = 10_000;

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        List<Thread> threads = new ArrayList<>();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            threads.add(new Thread(() -> say("result " + words[0] + " " + outcome(words))));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static String outcome(String[] words) {
        ZKClientConfig config = new ZKClientConfig();
        for (int at = 3; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            config.setProperty(pair[0], pair[1]);
        }
        BlockingQueue<KeeperState> states = new LinkedBlockingQueue<>();
        try (ZooKeeper client = new ZooKeeper(words[2], SESSION_MS, event -> states.add(event.getState()), config)) {
            long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(Long.parseLong(words[1]));
            KeeperState state = null;
            while (state != KeeperState.SyncConnected && state != KeeperState.AuthFailed) {
                state = states.poll(end - System.nanoTime(), TimeUnit.NANOSECONDS);
                if (state == null) {
                    return "no session";
                }
            }
            client.exists("/", false);
            return client.whoAmI().stream().map(who -> who.getAuthScheme() + ":" + who.getUser()).sorted().collect(Collectors.joining(" "));
        } catch (Exception fault) {
            // As the releases of ZooKeeper declare different ones.
            return fault instanceof KeeperException ? ((KeeperException) fault).code().toString() : fault.toString();
        }
    }
}
