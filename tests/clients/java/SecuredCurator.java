// Lists the root by Curator. Arguments: HOST:PORT, the milliseconds after which there is no session, KEY=VALUE ... with keys of
// ZKClientConfig. The answer: served, or refused.

import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.client.ZKClientConfig;

final class SecuredCurator {
    private static final int SESSION_MS = 10_000;

    public static void main(String[] arguments) throws Exception {
        ZKClientConfig config = new ZKClientConfig();
        for (String pair : Arrays.copyOfRange(arguments, 2, arguments.length)) {
            config.setProperty(pair.split("=", 2)[0], pair.split("=", 2)[1]);
        }
        CuratorFramework client = CuratorFrameworkFactory.builder()
            .connectString(arguments[0]).sessionTimeoutMs(SESSION_MS).connectionTimeoutMs(SESSION_MS)
            .retryPolicy(new RetryForever(100)).zkClientConfig(config).build();
        client.start();
        long limit = Long.parseLong(arguments[1]);
        Thread list = new Thread(() -> {
            try {
                client.getChildren().forPath("/");
                System.out.println("served");
            } catch (Exception fault) {
                System.err.println(fault);
            }
        });
        list.setDaemon(true);
        if (client.blockUntilConnected((int) limit, TimeUnit.MILLISECONDS)) {
            list.start();
            list.join(limit);
        }
        System.out.println("refused");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
