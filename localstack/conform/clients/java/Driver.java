import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * The conformance driver of Apache Kafka's own Java client, compiled against
 * each version under test. scenarios.md says what the scenarios do and how a
 * driver talks to the runner.
 */
public final class Driver {
    /** The client has no means for a scenario, or nobody answers a question. */
    static final class NotApplicable extends Exception {
        NotApplicable(String reason) { super(reason); }
    }

    interface Scenario { void run() throws Exception; }

    /** scenarioSeconds bounds one scenario; the runner has a longer limit. */
    static final int scenarioSeconds = 120;

    private static final PrintStream out = System.out;
    private static final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));

    private Driver() {}

    public static void main(String[] args) throws Exception {
        Map<String, String> flags = new HashMap<>();
        for (int i = 0; i + 1 < args.length; i += 2) flags.put(args[i], args[i + 1]);
        out.println("{\"version\":" + quote("kafka-clients " + AppInfoParser.getVersion()) + "}");
        Scenarios s = new Scenarios(flags.get("--bootstrap"), flags.get("--topic-prefix"));
        ExecutorService pool = Executors.newCachedThreadPool(r -> {
            Thread t = new Thread(r, "scenario");
            t.setDaemon(true);
            return t;
        });
        int failed = 0;
        for (String name : flags.get("--scenario").split(",")) {
            if (!run(pool, s, name)) failed++;
        }
        out.flush();
        System.exit(failed == 0 ? 0 : 1);
    }

    private static boolean run(ExecutorService pool, Scenarios s, String name) {
        long start = System.nanoTime();
        String result = "pass", detail = "";
        Scenario scenario = s.all.get(name);
        Future<Void> f = pool.submit((Callable<Void>) () -> {
            if (scenario == null) throw new IllegalArgumentException("unknown scenario " + name);
            scenario.run();
            return null;
        });
        try {
            f.get(scenarioSeconds, TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            Throwable cause = e.getCause();
            result = cause instanceof NotApplicable ? "na" : "fail";
            detail = cause instanceof NotApplicable ? cause.getMessage() : cause.toString();
            if (result.equals("fail")) cause.printStackTrace();
        } catch (TimeoutException e) {
            f.cancel(true);
            result = "fail";
            detail = "not done within " + scenarioSeconds + " s; last seen: " + s.last;
        } catch (InterruptedException e) {
            result = "fail";
            detail = e.toString();
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        out.println("{\"scenario\":" + quote(name) + ",\"result\":" + quote(result) + ",\"detail\":" + quote(detail)
            + ",\"seconds\":" + String.format("%.3f", seconds) + "}");
        out.flush();
        return !result.equals("fail");
    }

    /** ask has the runner do something, and returns once it is done. */
    static synchronized void ask(String what, String topic, int partition, String group) throws Exception {
        out.println("{\"ask\":" + quote(what) + ",\"topic\":" + quote(topic) + ",\"partition\":" + partition + ",\"group\":" + quote(group) + "}");
        out.flush();
        String line = in.readLine();
        if (line == null) throw new NotApplicable("nobody answers: run this scenario through make conform");
        if (!line.contains("\"ok\":true")) throw new NotApplicable(line);
    }

    static String quote(String s) {
        StringBuilder b = new StringBuilder("\"");
        for (char c : String.valueOf(s).toCharArray()) {
            if (c == '"' || c == '\\') b.append('\\').append(c);
            else if (c < 0x20) b.append(String.format("\\u%04x", (int) c));
            else b.append(c);
        }
        return b.append('"').toString();
    }

    static void check(boolean ok, String format, Object... args) {
        if (!ok) throw new AssertionError(String.format(format, args));
    }

    static List<Integer> upTo(int n) {
        List<Integer> out = new ArrayList<>();
        for (int i = 0; i < n; i++) out.add(i);
        return out;
    }
}
