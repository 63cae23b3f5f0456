package io.penstock.conformance;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.penstock.Enqueued;
import io.penstock.FieldException;
import io.penstock.Handler;
import io.penstock.Job;
import io.penstock.Message;
import io.penstock.NewJob;
import io.penstock.Outcome;
import io.penstock.Penstock;
import io.penstock.PenstockException;
import io.penstock.Queue;
import io.penstock.TxHandler;
import io.penstock.WorkOptions;
import io.penstock.Worker;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.postgresql.ds.PGSimpleDataSource;

/** Speaks the protocol of clients/conformance/README.md over standard input and output. */
public final class Program {
    private static final Gson JSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

    private interface Op {
        Object run(JsonObject request) throws Exception;
    }

    private record Database(Pool pool, Penstock penstock) {}

    private final PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);
    private final AtomicLong names = new AtomicLong();
    private final Map<String, Op> ops = new LinkedHashMap<>();
    private final Map<String, Database> databases = new ConcurrentHashMap<>();
    private final Map<String, Transaction> transactions = new ConcurrentHashMap<>();
    private final Map<String, Worker> workers = new ConcurrentHashMap<>();
    private final Map<String, CompletableFuture<Outcome>> calls = new ConcurrentHashMap<>();
    private final Map<String, Job> running = new ConcurrentHashMap<>(); // by call
    private final ExecutorService threads = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });

    public static void main(String[] args) throws Exception {
        Program program = new Program();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            program.workers.values().forEach(Worker::stop);
            program.workers.values().forEach(Worker::close);
            program.out.flush();
            Runtime.getRuntime().halt(0);
        }));
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            program.take(JsonParser.parseString(line).getAsJsonObject());
        }
        Runtime.getRuntime().halt(0);
    }

    private void take(JsonObject request) {
        Transaction tx = transactions.get(text(request, "tx", ""));
        String op = text(request, "op", "");
        boolean ends = op.equals("commit") || op.equals("rollback");
        if (tx != null && ends) {
            tx.end(op.equals("commit"));
        }
        Runnable answering = () -> write(answer(request));
        if (tx != null && !ends) {
            tx.execute(answering);
        } else if (op.equals("hello")) {
            answering.run(); // even if no more output follows
        } else {
            threads.execute(answering);
        }
    }

    private synchronized void write(Map<String, Object> line) {
        out.println(JSON.toJson(line));
        out.flush();
    }

    private Map<String, Object> answer(JsonObject request) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", request.get("id"));
        try {
            answer.put("result", found(ops, text(request, "op", "")).run(request));
        } catch (Throwable e) {
            answer.put("error", errorOf(e));
        }
        return answer;
    }

    private static Map<String, Object> errorOf(Throwable e) {
        Map<String, Object> error = new LinkedHashMap<>();
        error.put("message", String.valueOf(e.getMessage()));
        for (Throwable cause = e; cause != null; cause = cause.getCause()) {
            if (cause instanceof PenstockException p && p.sqlState() != null) {
                error.putIfAbsent("sqlstate", p.sqlState());
            } else if (cause instanceof SQLException sql && sql.getSQLState() != null) {
                error.putIfAbsent("sqlstate", sql.getSQLState());
            } else if (cause instanceof FieldException field) {
                error.put("field", field.field().replaceAll("([A-Z])", "_$1").toLowerCase());
            }
        }
        if (error.size() == 1) {
            e.printStackTrace();
        }
        return error;
    }

    private Program() {
        ops.put("hello", r -> Map.of("language", "java", "version", "0.1.0", "kinds", Transaction.kinds()));
        ops.put("open", this::open);
        ops.put("close", r -> {
            databases.remove(text(r, "db", "")).pool.close();
            return null;
        });
        ops.put("begin", r -> {
            String tx = name();
            transactions.put(tx, Transaction.begin(text(r, "kind", "jdbc"), database(r).pool.direct()));
            return Map.of("tx", tx);
        });
        ops.put("commit", this::ended);
        ops.put("rollback", this::ended);
        ops.put("execute", r -> tx(r).rows(text(r, "sql", "")));
        ops.put("publish", r -> {
            tx(r).penstock().publish(text(r, "outbox", ""), message(r.getAsJsonObject("message")));
            return null;
        });
        ops.put("publish_many", r -> {
            tx(r).penstock().publishMany(text(r, "outbox", ""), objects(r, "messages").stream().map(Program::message).toList());
            return null;
        });
        ops.put("enqueue", r -> enqueued(tx(r).penstock().enqueue(text(r, "queue", ""), newJob(r.getAsJsonObject("job")))));
        ops.put("enqueue_many", r -> tx(r).penstock().enqueueMany(text(r, "queue", ""), objects(r, "jobs").stream().map(Program::newJob).toList())
            .stream().map(Program::enqueued).toList());
        ops.put("barrier", r -> String.valueOf(tx(r).penstock().barrier(text(r, "queue", ""))));
        ops.put("seal", r -> {
            tx(r).penstock().seal(text(r, "queue", ""), Long.parseLong(text(r, "barrier", "")));
            return null;
        });
        ops.put("publish_after", r -> String.valueOf(tx(r).penstock().publishAfter(text(r, "queue", ""), has(r, "waits_for") ? leases(r, "waits_for") : List.of(),
            text(r, "outbox", ""), message(r.getAsJsonObject("message")), text(r, "on_dead", null))));
        ops.put("inbox_first", r -> tx(r).penstock().inbox(text(r, "consumer", "")).first(text(r, "message_id", "")));
        ops.put("claim", r -> {
            Map<String, Integer> shares = new LinkedHashMap<>();
            if (has(r, "groups")) {
                r.getAsJsonArray("groups").forEach(group -> shares.merge(group.getAsString(), 1, Integer::sum));
            }
            Duration lease = duration(r, "lease_ms", Duration.ofSeconds(30));
            var acks = has(r, "acks") ? leases(r, "acks") : null;
            var claimed = shares.isEmpty() ? queue(r).claim(number(r, "n", 1), lease, text(r, "group_key", ""), text(r, "worker", ""), acks)
                : queue(r).claimGroups(shares, lease, text(r, "worker", ""), acks);
            return Map.of("jobs", claimed.jobs().stream().map(Program::json).toList(), "acked", strings(claimed.acked()), "full", claimed.full());
        });
        ops.put("ack", r -> strings(queue(r).ackMany(leases(r, "leases"))));
        ops.put("extend", r -> strings(queue(r).extend(leases(r, "leases"), duration(r, "by_ms", Duration.ZERO))));
        ops.put("release", r -> strings(queue(r).release(leases(r, "leases"), duration(r, "after_ms", Duration.ZERO))));
        ops.put("retry", r -> Map.of("dead", !queue(r).retry(Long.parseLong(text(r, "lease", "")), duration(r, "after_ms", null), text(r, "error", ""))));
        ops.put("dead_letter", r -> {
            queue(r).deadLetter(Long.parseLong(text(r, "lease", "")), text(r, "error", ""));
            return null;
        });
        ops.put("report", r -> {
            queue(r).report(Long.parseLong(text(r, "lease", "")), text(r, "report", ""));
            return null;
        });
        ops.put("step", r -> {
            Job job = found(running, text(r, "call", ""));
            boolean[] ran = {false};
            String result = job.step(has(r, "tx") ? tx(r).penstock() : null, text(r, "name", ""), () -> {
                ran[0] = true;
                return text(r, "result", "");
            });
            return Map.of("ran", ran[0], "result", result);
        });
        ops.put("maintain", r -> {
            queue(r).maintain();
            return null;
        });
        ops.put("work", this::work);
        ops.put("outcome", this::outcome);
        ops.put("stop", r -> {
            workers.remove(text(r, "worker", "")).close();
            return null;
        });
    }

    private Object open(JsonObject r) throws Exception {
        URI uri = URI.create(text(r, "url", ""));
        PGSimpleDataSource direct = new PGSimpleDataSource();
        direct.setUrl("jdbc:postgresql://" + uri.getRawAuthority().replaceFirst("^.*@", "") + uri.getRawPath() + (uri.getRawQuery() == null ? "" : "?" + uri.getRawQuery()));
        if (uri.getUserInfo() != null) {
            String[] user = uri.getUserInfo().split(":", 2);
            direct.setUser(user[0]);
            direct.setPassword(user.length > 1 ? user[1] : null);
        }
        Pool pool = new Pool(direct);
        Penstock penstock = Penstock.on(pool.dataSource()).schema(text(r, "schema", "penstock"));
        penstock.check();
        String db = name();
        databases.put(db, new Database(pool, penstock));
        return Map.of("db", db);
    }

    private Object ended(JsonObject r) throws Exception {
        Transaction tx = tx(r);
        transactions.remove(text(r, "tx", ""));
        tx.await();
        return null;
    }

    // Workers

    private Object work(JsonObject r) {
        Penstock penstock = database(r).penstock;
        String queue = text(r, "queue", "");
        String name = name();
        WorkOptions o = new WorkOptions().concurrency(number(r, "concurrency", 10)).batch(number(r, "batch", 100))
            .lease(duration(r, "lease_ms", Duration.ofSeconds(30))).drainTimeout(duration(r, "drain_ms", Duration.ofSeconds(10)));
        if (has(r, "group_key")) {
            o.groupKey(text(r, "group_key", ""));
        }
        if (has(r, "groups")) {
            o.groups(r.getAsJsonArray("groups").asList().stream().map(group -> group.getAsString()).toList());
        }
        if (has(r, "all_groups") && r.get("all_groups").getAsBoolean()) {
            o.allGroups();
        }
        if (r.has("worker_name")) {
            o.worker(text(r, "worker_name", ""));
        }
        boolean inTx = r.has("work_tx") && r.get("work_tx").getAsBoolean();
        List<String> kinds = has(r, "kinds") ? r.getAsJsonArray("kinds").asList().stream().map(kind -> kind.getAsString()).toList() : null;
        Handler plain = job -> ask(name, job, null);
        TxHandler within = (connection, job) -> {
            String tx = name();
            Transaction given = Transaction.of(connection);
            transactions.put(tx, given);
            try {
                return ask(name, job, tx);
            } finally {
                transactions.remove(tx);
                given.end(true);
                given.await();
            }
        };
        Handler handler = kinds == null ? plain : Handler.byKind(kinds.stream().collect(Collectors.toMap(kind -> kind, kind -> plain)));
        TxHandler txHandler = kinds == null ? within : TxHandler.byKind(kinds.stream().collect(Collectors.toMap(kind -> kind, kind -> within)));
        Worker worker = penstock.worker(queue, inTx ? penstock.inTransaction(queue, txHandler) : handler, o);
        workers.put(name, worker.start());
        return Map.of("worker", name);
    }

    /** The handler: the harness says how it ends. */
    private Outcome ask(String worker, Job job, String tx) throws Exception {
        String name = name();
        CompletableFuture<Outcome> call = new CompletableFuture<>();
        calls.put(name, call);
        running.put(name, job);
        Map<String, Object> event = new LinkedHashMap<>(Map.of("event", "job", "worker", worker, "call", name, "job", json(job)));
        if (tx != null) {
            event.put("tx", tx);
        }
        write(event);
        try {
            return call.get();
        } catch (InterruptedException e) {
            if (calls.remove(name) == null) { // it has ended a moment ago
                return call.get();
            }
            write(Map.of("event", "aborted", "worker", worker, "call", name, "cause", job.aborted() == null ? "timeout" : job.aborted().name().toLowerCase()));
            throw e;
        } catch (ExecutionException e) {
            throw e.getCause() == UNREADABLE ? new Unreadable() : (Exception) e.getCause();
        } finally {
            running.remove(name);
        }
    }

    private static final Exception UNREADABLE = new Exception("stands for one that a future could not carry");

    private static final class Unreadable extends Exception {
        private static final long serialVersionUID = 1;

        @Override
        public String getMessage() {
            throw new StackOverflowError();
        }
    }

    private Object outcome(JsonObject r) {
        CompletableFuture<Outcome> call = calls.remove(text(r, "call", ""));
        if (call == null) {
            return null;
        }
        String reason = text(r, "reason", "");
        Duration after = duration(r, "after_ms", null);
        switch (text(r, "outcome", "")) {
            case "done" -> call.complete(Outcome.done());
            case "retry" -> call.complete(Outcome.retry(after, reason));
            case "snooze" -> call.complete(Outcome.snooze(after));
            case "dead_letter" -> call.complete(Outcome.deadLetter(reason));
            case "cancelled" -> call.complete(Outcome.cancelled());
            case "unreadable" -> call.completeExceptionally(UNREADABLE);
            default -> call.completeExceptionally(new Exception(reason));
        }
        return null;
    }

    // Values

    private String name() {
        return Long.toString(names.incrementAndGet());
    }

    private static <T> T found(Map<String, T> all, String name) {
        T one = all.get(name);
        if (one == null) {
            throw new IllegalArgumentException("there is no " + name);
        }
        return one;
    }

    private Database database(JsonObject r) {
        return found(databases, text(r, "db", ""));
    }

    private Transaction tx(JsonObject r) {
        return found(transactions, text(r, "tx", ""));
    }

    private Queue queue(JsonObject r) {
        return database(r).penstock.queue(text(r, "queue", ""));
    }

    private static boolean has(JsonObject o, String field) {
        return o.has(field) && !o.get(field).isJsonNull();
    }

    private static String text(JsonObject o, String field, String otherwise) {
        return has(o, field) ? o.get(field).getAsString() : otherwise;
    }

    private static int number(JsonObject o, String field, int otherwise) {
        return has(o, field) ? o.get(field).getAsInt() : otherwise;
    }

    private static Duration duration(JsonObject o, String field, Duration otherwise) {
        return has(o, field) ? Duration.ofMillis(o.get(field).getAsLong()) : otherwise;
    }

    private static List<JsonObject> objects(JsonObject o, String field) {
        List<JsonObject> all = new ArrayList<>();
        for (JsonElement e : has(o, field) ? o.getAsJsonArray(field) : new JsonArray()) {
            all.add(e.getAsJsonObject());
        }
        return all;
    }

    private static List<Long> leases(JsonObject o, String field) {
        List<Long> all = new ArrayList<>();
        for (JsonElement e : has(o, field) ? o.getAsJsonArray(field) : new JsonArray()) {
            all.add(Long.parseLong(e.getAsString()));
        }
        return all;
    }

    private static Map<String, String> headers(JsonObject o) {
        Map<String, String> headers = new LinkedHashMap<>();
        if (has(o, "headers")) {
            o.getAsJsonObject("headers").entrySet().forEach(h -> headers.put(h.getKey(), h.getValue().getAsString()));
        }
        return headers;
    }

    private static byte[] payload(JsonObject o) {
        return Base64.getDecoder().decode(text(o, "payload", ""));
    }

    private static Message message(JsonObject m) {
        return Message.of(payload(m)).id(text(m, "id", null)).key(text(m, "key", null)).topic(text(m, "topic", null)).headers(headers(m));
    }

    private static NewJob newJob(JsonObject j) {
        String notBefore = text(j, "not_before", null);
        NewJob job = NewJob.of(payload(j)).kind(text(j, "kind", null)).key(text(j, "key", null)).groupKey(text(j, "group_key", null)).priority(number(j, "priority", 0))
            .notBefore(notBefore == null ? null : Instant.parse(notBefore)).dedupKey(text(j, "dedup_key", null)).headers(headers(j))
            .uniqueKey(text(j, "unique_key", null)).onConflict(text(j, "on_conflict", null)).onDead(text(j, "on_dead", null));
        job = has(j, "debounce_max_ms") ? job.debounceMax(duration(j, "debounce_max_ms", null)) : job;
        job = has(j, "max_attempts") ? job.maxAttempts(number(j, "max_attempts", 0)) : job;
        job = has(j, "timeout_ms") ? job.timeout(duration(j, "timeout_ms", null)) : job;
        job = has(j, "deadline") ? job.deadline(Instant.parse(text(j, "deadline", ""))) : job;
        job = has(j, "waits_for") ? job.waitsFor(leases(j, "waits_for").toArray(Long[]::new)) : job;
        return has(j, "holds") ? job.holds(Long.parseLong(text(j, "holds", ""))) : job;
    }

    private static Map<String, Object> enqueued(Enqueued e) {
        return Map.of("id", Long.toString(e.id()), "deduplicated", e.deduplicated());
    }

    private static List<String> strings(List<Long> numbers) {
        return numbers.stream().map(String::valueOf).toList();
    }

    private static Map<String, Object> json(Job j) {
        Map<String, Object> job = new LinkedHashMap<>();
        job.put("id", Long.toString(j.id()));
        job.put("kind", j.kind());
        job.put("key", j.key());
        job.put("group_key", j.groupKey());
        job.put("priority", j.priority());
        job.put("attempt", j.attempt());
        job.put("created_at", j.createdAt().toString());
        job.put("headers", j.headers());
        job.put("payload", Base64.getEncoder().encodeToString(j.payload()));
        job.put("report", j.report());
        job.put("lease", Long.toString(j.lease()));
        job.put("lease_until", j.leaseUntil().toString());
        return job;
    }
}
