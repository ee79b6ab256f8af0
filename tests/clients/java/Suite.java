// The runner of the Java programs: runs named tests, prints a line for each, and asks the suite that started the program to
// kill and start the server. It knows nothing of the clients under test.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;

final class Suite {
    static final int WAIT_LIMIT_MS = 30_000;

    interface Test {
        void run() throws Exception;
    }

    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));
    private final Map<String, Test> tests = new LinkedHashMap<>();
    private final String only;

    /** Only tests whose name contains `only` run. */
    Suite(String only) {
        this.only = only;
    }

    Suite add(String name, Test test) {
        if (name.contains(only)) {
            tests.put(name, test);
        }
        return this;
    }

    /** Runs all tests and ends the process, whatever threads the clients left. */
    void run() {
        for (Map.Entry<String, Test> entry : tests.entrySet()) {
            try {
                entry.getValue().run();
                say("ok " + entry.getKey());
            } catch (Throwable fault) {
                fault.printStackTrace();
                say("FAIL " + entry.getKey() + ": " + fault.toString().replace('\n', ' '));
            }
        }
        say("end");
        Runtime.getRuntime().halt(0);
    }

    /** Has the server killed with kill -9 and started again; returns when it serves. */
    static void restartServer() throws Exception {
        say("restart");
        equal(INPUT.readLine(), "restarted");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static void equal(Object actual, Object expected) {
        if (!Objects.equals(actual, expected)) {
            throw new AssertionError("got " + actual + ", expected " + expected);
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    /** Fails unless the call throws this kind of exception. */
    static void raises(Class<? extends Throwable> kind, Callable<?> call) throws Exception {
        Object value;
        try {
            value = call.call();
        } catch (Exception fault) {
            if (kind.isInstance(fault)) {
                return;
            }
            throw fault;
        }
        throw new AssertionError("returned " + value + " instead of throwing " + kind.getSimpleName());
    }

    /** Waits until the condition holds. */
    static void until(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + WAIT_LIMIT_MS * 1_000_000L;
        while (!condition.call()) {
            check(System.nanoTime() < deadline, what + ": not within " + WAIT_LIMIT_MS + " ms");
            Thread.sleep(10);
        }
    }
}
