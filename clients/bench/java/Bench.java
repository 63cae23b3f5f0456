import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import io.penstock.NewJob;
import io.penstock.Outcome;
import io.penstock.Penstock;
import io.penstock.WorkOptions;
import java.io.BufferedReader;
import java.io.IOException;
import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import javax.sql.DataSource;

/** What the queue does with jobs: enqueued in batches, drained by four processes, a steady rate, and rounds with a pinned snapshot. */
class Bench {
    static final int BATCH = 1_000, WORKERS = 4, CONCURRENCY = 10, ROUND = 2_000;

    // A payload is the time at which it was enqueued, in microseconds.

    static void make(String url) throws Exception {
        for (String command : List.of("migrate", "queue create bench")) {
            var penstock = new ProcessBuilder((System.getenv("PENSTOCK_BIN") + " " + command).split(" ")).redirectErrorStream(true);
            penstock.environment().put("PENSTOCK_DATABASE_URL", url);
            Process process = penstock.start();
            String said = new String(process.getInputStream().readAllBytes());
            if (process.waitFor() != 0) {
                throw new IllegalStateException(said);
            }
        }
    }

    static Consumer<List<String>> enqueuer(DataSource pool) {
        Penstock penstock = Penstock.on(pool);
        return payloads -> penstock.enqueueMany("bench", payloads.stream().map(NewJob::of).toList());
    }

    /** Works until SIGTERM. */
    static void work(DataSource pool, Consumer<String> handler) {
        Penstock.on(pool).work("bench", job -> {
            handler.accept(job.text());
            return Outcome.done();
        }, new WorkOptions().concurrency(CONCURRENCY));
    }

    static Connection connect(String url) throws Exception {
        return DriverManager.getConnection(jdbc(url));
    }

    static String jdbc(String url) {
        URI uri = URI.create(url);
        String[] user = uri.getUserInfo().split(":");
        return "jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + uri.getPath() + "?sslmode=disable&user=" + user[0]
            + (user.length > 1 ? "&password=" + user[1] : "");
    }

    static HikariDataSource pool(String url) {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(jdbc(url));
        config.setMaximumPoolSize(CONCURRENCY + 3);
        return new HikariDataSource(config);
    }

    static long micros() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }

    // A worker's process prints how long jobs waited, by the clock that all processes share, in one line for many jobs
    // every 20 ms.

    static void worker(String url) throws Exception {
        List<Long> waits = new ArrayList<>();
        Thread teller = new Thread(() -> {
            while (!System.out.checkError()) {
                List<Long> told;
                synchronized (waits) {
                    told = List.copyOf(waits);
                    waits.clear();
                }
                if (!told.isEmpty()) {
                    System.out.println(String.join(" ", told.stream().map(String::valueOf).toList()));
                }
                try {
                    Thread.sleep(20);
                } catch (InterruptedException e) {
                    return;
                }
            }
        });
        teller.setDaemon(true);
        teller.start();
        HikariDataSource pool = pool(url);
        System.out.println("ready");
        System.in.read();
        work(pool, payload -> {
            long wait = micros() - Long.parseLong(payload);
            synchronized (waits) {
                waits.add(wait);
            }
        });
    }

    // Measurements

    static final List<Long> waits = new ArrayList<>(); // of all workers

    static List<Process> start(String url) throws Exception {
        List<Process> workers = new ArrayList<>();
        for (int i = 0; i < WORKERS; i++) {
            Process process = new ProcessBuilder(ProcessHandle.current().info().command().orElse("java"), "-Xmx512m", "-XX:+UseSerialGC",
                "-cp", System.getProperty("java.class.path"), "Bench", "worker", url).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            workers.add(process);
            BufferedReader said = process.inputReader();
            said.readLine(); // it is ready
            new Thread(() -> {
                try {
                    for (String line = said.readLine(); line != null; line = said.readLine()) {
                        synchronized (waits) {
                            for (String wait : line.split(" ")) {
                                waits.add(Long.parseLong(wait));
                            }
                            waits.notifyAll();
                        }
                    }
                } catch (IOException e) { // it was ended
                }
            }).start();
        }
        return workers;
    }

    static List<Long> come(int n, long most) throws InterruptedException {
        long begin = System.nanoTime();
        synchronized (waits) {
            for (long left = most; waits.size() < n && left > 0; left = most - (System.nanoTime() - begin)) {
                waits.wait(left / 1_000_000 + 1);
            }
            List<Long> all = new ArrayList<>(waits);
            waits.clear();
            return all;
        }
    }

    static void put(Consumer<List<String>> enqueue, int n) {
        for (int at = 0; at < n; at += BATCH) {
            enqueue.accept(Collections.nCopies(Math.min(BATCH, n - at), String.valueOf(micros())));
        }
    }

    static Map<String, Double> measure(String part, int jobs, int rate, int seconds, int pinned, long most) throws Exception {
        URI server = URI.create(System.getenv("PENSTOCK_TEST_POSTGRES"));
        String database = "bench_" + ProcessHandle.current().pid();
        String url = new URI(server.getScheme(), server.getUserInfo(), server.getHost(), server.getPort(), "/" + database, server.getQuery(), null).toString();
        try (Connection admin = connect(server.toString())) {
            admin.createStatement().execute("create database " + database);
            List<Process> workers = List.of();
            try (HikariDataSource pool = makePool(url)) {
                Consumer<List<String>> enqueue = enqueuer(pool);
                boolean drains = part.equals("all") || part.equals("drain");
                if (!drains) {
                    jobs = ROUND; // to begin with
                }
                long begin = System.nanoTime();
                put(enqueue, jobs);
                long enqueueing = System.nanoTime() - begin;

                workers = start(url);
                begin = System.nanoTime();
                for (Process worker : workers) {
                    worker.getOutputStream().write('\n');
                    worker.getOutputStream().flush();
                }
                int came = come(jobs, most).size();
                double draining = (System.nanoTime() - begin) * (double) jobs / came; // of all jobs, if it takes longer than most

                Map<String, Double> told = new LinkedHashMap<>();
                if (drains) {
                    told.put("enqueue_per_second", jobs * 1e9 / enqueueing);
                    told.put("drain_per_second", jobs * 1e9 / draining);
                    told.put("both_per_second", jobs * 1e9 / (enqueueing + draining));
                }
                if (part.equals("all") || part.equals("steady")) {
                    List<Long> steady = steady(enqueue, rate, seconds);
                    told.put("p50_ms", steady.get(steady.size() / 2) / 1e3);
                    told.put("p99_ms", steady.get(steady.size() * 99 / 100) / 1e3);
                }
                if (part.equals("all") || part.equals("pinned")) {
                    told.put("flat", flat(enqueue, url, pinned));
                }
                return told;
            } finally {
                for (Process worker : workers) {
                    worker.destroy();
                }
                for (Process worker : workers) {
                    worker.waitFor();
                }
                admin.createStatement().execute("drop database " + database + " with (force)");
            }
        }
    }

    static HikariDataSource makePool(String url) throws Exception {
        make(url);
        return pool(url);
    }

    /** How long each job waited that was enqueued by itself at a steady rate, sorted. */
    static List<Long> steady(Consumer<List<String>> enqueue, int rate, int seconds) throws InterruptedException {
        long begin = System.nanoTime();
        for (int i = 0; i < rate * seconds; i++) {
            long early = begin + i * 1_000_000_000L / rate - System.nanoTime();
            if (early > 0) {
                Thread.sleep(Duration.ofNanos(early).toMillis(), (int) (early % 1_000_000));
            }
            put(enqueue, 1);
        }
        List<Long> all = come(rate * seconds, Long.MAX_VALUE);
        Collections.sort(all);
        return all;
    }

    /** Rounds of enqueueing and draining with a snapshot that stays open: the median of the last fifth of them by the first's. */
    static double flat(Consumer<List<String>> enqueue, String url, int seconds) throws Exception {
        List<Long> took = new ArrayList<>();
        try (Connection pin = connect(url)) {
            pin.setAutoCommit(false);
            pin.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
            pin.createStatement().execute("select count(*) from pg_class");
            long end = System.nanoTime() + seconds * 1_000_000_000L;
            while (System.nanoTime() < end) {
                long begin = System.nanoTime();
                put(enqueue, ROUND);
                come(ROUND, Long.MAX_VALUE);
                took.add(System.nanoTime() - begin);
            }
        }
        int fifth = Math.max(1, took.size() / 5);
        return median(took.subList(took.size() - fifth, took.size())) / median(took.subList(0, fifth));
    }

    static double median(List<Long> some) {
        return some.stream().sorted().toList().get(some.size() / 2);
    }

    static String json(Map<String, Double> figures) {
        return figures.entrySet().stream().map(f -> "\"%s\":%s".formatted(f.getKey(), f.getKey().endsWith("second") ? Math.round(f.getValue()) : "%.2f".formatted(f.getValue())))
            .collect(Collectors.joining(",", "{", "}"));
    }

    public static void main(String[] args) throws Exception {
        if (args.length == 2 && args[0].equals("worker")) {
            worker(args[1]);
            return;
        }
        List<String> given = new ArrayList<>(List.of(args));
        boolean quick = given.remove("--quick");
        String part = option(given, "--part", "all", "drain", "steady", "pinned");
        long most = Long.MAX_VALUE;
        if (given.size() == 2 && given.get(0).equals("--most")) {
            most = Long.parseLong(given.get(1)) * 1_000_000_000;
            given.clear();
        }
        if (!given.isEmpty()) {
            throw new IllegalArgumentException("usage: bench.sh [--quick] [--part all|drain|steady|pinned] [--most SECONDS]");
        }
        int jobs = quick ? 5_000 : 100_000, rate = 500, seconds = quick ? 5 : 30, pinned = quick ? 5 : 300;
        Map<String, Double> of = measure(part, jobs, rate, seconds, pinned, most);
        System.out.printf("{\"language\":\"java\",\"part\":\"%s\",\"jobs\":%d,\"workers\":%d,\"rate\":%d,\"pinned_seconds\":%d,\"penstock\":%s}%n", part, jobs, WORKERS, rate,
            pinned, json(of));
        System.exit(0);
    }

    /** The value behind a name, the first of those that there are without one. */
    static String option(List<String> given, String name, String... values) {
        int at = given.indexOf(name);
        if (at < 0 || at + 1 == given.size() || !List.of(values).contains(given.get(at + 1))) {
            return values[0];
        }
        given.remove(at);
        return given.remove(at);
    }
}
