package io.penstock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.penstock.WorkOptions.End;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.HashSet;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.stream.LongStream;
import javax.sql.DataSource;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 3, unit = TimeUnit.MINUTES) // ends what has failed
class WorkTest {
    private Database database;
    private Penstock penstock;
    private final LinkedBlockingQueue<Map.Entry<String, End>> ends = new LinkedBlockingQueue<>();
    private final WorkOptions options = new WorkOptions().onEnd((job, end) -> ends.add(Map.entry(job.text(), end)));

    @BeforeEach
    void make() throws Exception {
        database = new Database();
        penstock = Penstock.on(database.dataSource);
    }

    @AfterEach
    void drop() throws Exception {
        database.close();
    }

    private void enqueue(String... payloads) {
        penstock.enqueueMany("jobs", List.of(payloads).stream().map(NewJob::of).toList());
    }

    private Map<String, End> ended(int n) throws InterruptedException {
        Map<String, End> all = new ConcurrentHashMap<>();
        while (all.size() < n) {
            var one = ends.take();
            all.put(one.getKey(), one.getValue());
        }
        return all;
    }

    @Test
    void aWorkerIsStartedOnce() throws Exception {
        Worker worker = penstock.worker("jobs", job -> null, options).start();
        assertThrows(IllegalStateException.class, worker::start);
        assertThrows(IllegalStateException.class, worker::run);
        enqueue("a");
        assertEquals(Map.of("a", End.DONE), ended(1)); // it works
        worker.close();
        assertThrows(IllegalStateException.class, worker::start);
    }

    @Test
    void mistakesAreFoundBeforeAJobIs() {
        for (String text : List.of("handler is null", "options is null")) {
            boolean handler = text.startsWith("handler");
            assertEquals(text, assertThrows(FieldException.class, () -> penstock.worker("jobs", handler ? null : job -> null, handler ? options : null)).getMessage());
        }
        assertThrows(FieldException.class, () -> penstock.inTransaction("jobs", null));
        var twice = assertThrows(FieldException.class, () -> new WorkOptions().groupKey("a").allGroups());
        assertEquals("allGroups is given, and groupKey as well: give one of groupKey, groups and allGroups", twice.getMessage());
        assertThrows(FieldException.class, () -> new WorkOptions(new WorkOptions().allGroups()).groups(List.of("a")));
        assertEquals(List.of("b"), new WorkOptions().groupKey("a").groupKey("b").groups);
    }

    @Test
    void outcomesAreReturnedOrThrown() throws Exception {
        enqueue("done", "null", "retry", "snooze", "dead", "cancelled", "throws", "error");
        try (Worker worker = penstock.worker("jobs", job -> switch (job.text()) {
            case "done" -> Outcome.done();
            case "retry" -> throw Outcome.retry(Duration.ofHours(1), "later");
            case "snooze" -> Outcome.snooze(Duration.ofHours(1));
            case "dead" -> throw Outcome.deadLetter("no good");
            case "cancelled" -> Outcome.cancelled();
            case "throws" -> throw new Exception("\0 \uD800 一");
            case "error" -> throw new StackOverflowError();
            default -> null;
        }, options).start()) {
            assertEquals(Map.of("done", End.DONE, "null", End.DONE, "retry", End.FAILED, "snooze", End.SNOOZED, "dead", End.DEAD, "cancelled", End.CANCELLED,
                "throws", End.FAILED, "error", End.FAILED), ended(8));
        }
    }

    /** A data source whose connections a test refuses, or breaks. */
    private DataSource changed(InvocationHandler change) {
        return (DataSource) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {DataSource.class}, change);
    }

    @Test
    void noAttemptIsSpentWhileATransactionCannotBegin() throws Exception {
        var away = new AtomicBoolean(true);
        var transactions = Penstock.on(changed((self, method, given) -> {
            if (away.get()) {
                throw new SQLException("no connection is free", "08001");
            }
            return method.invoke(database.dataSource, given);
        }));
        penstock.enqueue("jobs", NewJob.of("a").maxAttempts(1));
        var attempts = new LinkedBlockingQueue<Integer>();
        try (Worker worker = penstock.worker("jobs", transactions.inTransaction("jobs", (tx, job) -> {
            attempts.add(job.attempt());
            return null;
        }), options).start()) {
            assertEquals(Map.entry("a", End.SNOOZED), ends.take());
            away.set(false);
            while (ends.take().getValue() != End.SETTLED) { } // it may have been given back once more
            assertEquals(List.of(1), List.copyOf(attempts));
        }
    }

    /** For example, the system refuses a thread. The worker does not seem to work without its own threads. */
    @Test
    void aWorkerStopsWhenOneOfItsThreadsEnds() {
        for (String thread : List.of("penstock claim", "penstock maintain")) {
            Before refused = method -> {
                if (Thread.currentThread().getName().equals(thread)) {
                    throw new OutOfMemoryError("unable to create native thread");
                }
            };
            var limited = Penstock.on(wrapped(DataSource.class, database.dataSource, refused, made -> wrapped(Connection.class, made, refused, same -> same)));
            var ended = assertThrows(PenstockException.class, () -> limited.worker("jobs", job -> null, options).run());
            assertEquals("a thread of the worker has ended: java.lang.OutOfMemoryError: unable to create native thread", ended.getMessage());
        }
    }

    @Test
    void aConnectionThatIsGoneDoesNotChangeTheOutcome() throws Exception {
        enqueue("returned", "thrown");
        try (Worker worker = penstock.worker("jobs", penstock.inTransaction("jobs", (tx, job) -> {
            tx.abort(Runnable::run); // as a cut connection: its rollback fails
            if (job.text().equals("thrown")) {
                throw Outcome.deadLetter("no such user");
            }
            return Outcome.snooze(Duration.ofHours(1));
        }), options).start()) {
            assertEquals(Map.of("returned", End.SNOOZED, "thrown", End.DEAD), ended(2));
        }
    }

    @Test
    void aJobGoesToTheHandlerOfItsKind() throws Exception {
        var kind = Map.of(Penstock.HEADER_KIND, "welcome");
        penstock.enqueueMany("jobs", List.of(NewJob.of("a").kind("welcome"), NewJob.of("b").headers(kind), NewJob.of("c"), NewJob.of("d").kind("later").headers(Map.of("x", "y"))));
        Map<String, String> handled = new ConcurrentHashMap<>();
        Map<String, Handler> handlers = Map.of("welcome", job -> noted(handled, job, "welcomed"), "", job -> noted(handled, job, "without"));
        var lines = new LinkedBlockingQueue<String>();
        try (var log = new Log(r -> lines.add(r.getMessage())); Worker worker = penstock.worker("jobs", Handler.byKind(handlers), options).start()) {
            assertEquals(Map.of("a", End.DONE, "b", End.DONE, "c", End.DONE, "d", End.RELEASED), ended(4));
        }
        var unknown = lines.stream().filter(line -> line.startsWith("no handler for kind \"later\" in this worker, which has \"\", \"welcome\". ")).toList();
        assertEquals(1, unknown.size(), lines.toString());
        assertTrue(unknown.get(0).contains("after 60 min"), unknown.get(0));
        assertEquals(Map.of("a", "welcomed 1 welcome", "b", "welcomed 1 welcome", "c", "without 1 "), handled);
        Testing.advance(penstock, "jobs", Duration.ofSeconds(15));
        ends.clear();
        TxHandler later = TxHandler.byKind(Map.of("later", (tx, job) -> noted(handled, job, "later")));
        try (Worker worker = penstock.worker("jobs", penstock.inTransaction("jobs", later), options).start()) {
            assertEquals(Map.of("d", End.SETTLED), ended(1));
        }
        assertEquals("later 1 later", handled.get("d"), "no attempt was spent");
    }

    /** First it may be claimed at once, and the worker claims nothing for a while: others meet it first. If it meets the job again, that rests. */
    @Test
    void aJobWhoseKindHasNoHandlerRestsEveryOtherTime() throws Exception {
        penstock.enqueue("jobs", NewJob.of("a").kind("later"));
        var kinds = new Kinds<>(Map.of("welcome", "its handler"), Kinds.GIVE_UP);
        List<Job> met = new ArrayList<>();
        List<Long> times = new ArrayList<>();
        Handler unknown = job -> {
            met.add(job);
            times.add(System.nanoTime());
            return kinds.unknown(job);
        };
        try (Worker worker = penstock.worker("jobs", unknown, options).start()) {
            ends.take();
            assertEquals(Map.entry("a", End.RELEASED), ends.take());
            assertTrue(times.get(1) - times.get(0) >= Duration.ofMillis(50).toNanos());
        }
        var other = new Kinds<>(Map.of("welcome", "its handler"), Kinds.GIVE_UP);
        long s = 1_000_000_000;
        List<Double> rests = LongStream.of(100, 101, 102, 108, 109, 118, 119, 128, 200).mapToObj(at -> other.rest(met.get(0), at * s).toMillis() / 1e3).toList();
        assertEquals(List.of(0.0, 0.5, 0.0, 4.0, 0.0, 9.0, 0.0, 10.0, 0.0), rests);
    }

    @Test
    void aJobWhoseKindHasNoHandlerIsGivenUpAtTheSecondMeeting() throws Exception {
        database.execute("insert into penstock.jobs (payload, headers, created_at) values ('e', '{\"penstock-kind\": \"typo\"}', now() - interval '61 minutes')");
        Map<String, Handler> handlers = Map.of("welcome", job -> null);
        try (Worker worker = penstock.worker("jobs", Handler.byKind(handlers), options).start()) {
            assertEquals(Map.of("e", End.RELEASED), ended(1), "other workers can also meet it");
            assertEquals(Map.of("e", End.RELEASED), ended(1), "for half an hour");
        }
        ends.clear();
        try (Worker worker = penstock.worker("jobs", Handler.byKind(handlers, Duration.ofNanos(1)), options).start()) {
            Testing.advance(penstock, "jobs", Duration.ofSeconds(15));
            assertEquals(Map.of("e", End.RELEASED), ended(1));
            assertEquals(Map.of("e", End.DEAD), ended(1));
        }
        assertEquals(true, database.value("select failures::text like '%no handler for kind \\\\\"typo%' from penstock._dead_job"));
        database.execute("insert into penstock.jobs (payload, headers) values ('f', '{\"penstock-kind\": \"typo\"}')");
        TxHandler transactional = TxHandler.byKind(Map.of("welcome", (tx, job) -> null), Duration.ofNanos(1));
        try (Worker worker = penstock.worker("jobs", penstock.inTransaction("jobs", transactional), options).start()) {
            assertEquals(Map.of("f", End.RELEASED), ended(1));
            assertEquals(Map.of("f", End.DEAD), ended(1), "a giveUp of its own");
        }
    }

    private static Outcome noted(Map<String, String> handled, Job job, String by) {
        handled.put(job.text(), by + " " + job.attempt() + " " + job.kind());
        return null;
    }

    @Test
    void handlersRunInVirtualThreadsWhereThereAreAny() throws Exception {
        enqueue("x");
        var thread = new LinkedBlockingQueue<Boolean>();
        try (Worker worker = penstock.worker("jobs", job -> {
            thread.add(Runtime.version().feature() >= 21 && (Boolean) Thread.class.getMethod("isVirtual").invoke(Thread.currentThread()));
            return null;
        }, options).start()) {
            assertEquals(Runtime.version().feature() >= 21, thread.take());
        }
    }

    @Test
    void aReasonThatTheDatabaseCannotHoldIsReplaced() throws Exception {
        try (Database latin = new Database("encoding 'LATIN1' locale 'C' template template0")) {
            Penstock there = Penstock.on(latin.dataSource);
            there.enqueue("jobs", NewJob.of("x"));
            try (Worker worker = there.worker("jobs", job -> Outcome.deadLetter("no 一"), options).start()) {
                assertEquals(Map.of("x", End.DEAD), ended(1));
            }
            assertEquals(true, latin.value("select failures::text like '%no ?%' from penstock._dead_job"));
        }
    }

    @Test
    void aLostLeaseInterruptsTheHandler() throws Exception {
        enqueue("x");
        var causes = new LinkedBlockingQueue<String>();
        try (Worker worker = penstock.worker("jobs", job -> {
            try {
                penstock.queue("jobs").ackMany(List.of(job.lease())); // as if it had run elsewhere
                new CountDownLatch(1).await();
                return null;
            } finally { // a call can be interrupted, too
                causes.add(String.valueOf(job.aborted()));
            }
        }, options.lease(Duration.ofSeconds(1))).start()) {
            assertEquals("LEASE_LOST", causes.take());
            assertEquals(Map.of("x", End.LOST), ended(1));
        }
    }

    @Test
    void leasesAreExtendedWhileHandlersRun() throws Exception {
        enqueue("x");
        CountDownLatch goOn = new CountDownLatch(1);
        var begun = new LinkedBlockingQueue<Job>();
        try (Worker worker = penstock.worker("jobs", job -> {
            begun.add(job);
            goOn.await();
            return null;
        }, options.lease(Duration.ofSeconds(20))).start()) {
            Job job = begun.take();
            String until = "select lease_until from penstock._lease where queue > 0"; // heartbeats have -1
            Object first = database.value(until);
            while (first.equals(database.value(until))) {
                Thread.onSpinWait();
            }
            goOn.countDown();
            assertEquals(Map.of("x", End.DONE), ended(1));
            assertEquals(1, job.attempt());
        }
    }

    @Test
    void whatAnotherAttemptCannotCureEndsIt() {
        assertThrows(NotFoundException.class, () -> penstock.worker("missing", job -> null, options).run());
        assertThrows(SchemaException.class, () -> penstock.schema("elsewhere").worker("jobs", job -> null, options).run());
        assertThrows(FieldException.class, () -> new WorkOptions().concurrency(0));
        assertEquals("lease is PT0.03S, expected a second or more", assertThrows(FieldException.class, () -> new WorkOptions().lease(Duration.ofMillis(30))).getMessage());
    }

    @Test
    void aWorkerGoesOnThroughErrorsOfTheDatabase() throws Exception {
        enqueue("a");
        try (Worker worker = penstock.worker("jobs", job -> {
            if (job.text().equals("a")) {
                database.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()");
            }
            return null;
        }, options).start()) {
            ended(1);
            enqueue("b");
            assertEquals(Map.of("b", End.DONE), ended(1));
        }
    }

    @Test
    void inATransactionEverythingOrNothing() throws Exception {
        database.execute("create table effect (payload text)");
        enqueue("good", "bad", "thrown");
        try (Worker worker = penstock.worker("jobs", penstock.inTransaction("jobs", (tx, job) -> {
            Execute.on(tx).execute("insert into effect values (?)", job.text());
            if (job.text().equals("thrown")) {
                throw new Exception("no");
            }
            return job.text().equals("bad") ? Outcome.deadLetter("bad") : Outcome.done();
        }), options).start()) {
            assertEquals(Map.of("good", End.SETTLED, "bad", End.DEAD, "thrown", End.FAILED), ended(3));
        }
        assertEquals("good", database.value("select string_agg(payload, ' ') from effect"));
    }

    /** Between the statement that ends the job and the commit: nothing has happened, and the job runs again. */
    @Test
    void aCommitThatFailsIsAnotherAttempt() throws Exception {
        database.execute("create table effect (attempt int)");
        enqueue("x");
        AtomicBoolean fails = new AtomicBoolean(true);
        DataSource failing = wrapped(DataSource.class, database.dataSource, method -> {}, made -> wrapped(Connection.class, made, method -> {
            if (method.equals("commit") && fails.getAndSet(false)) {
                throw new SQLException("the commit is refused", "40001");
            }
        }, same -> same));
        Penstock there = Penstock.on(failing);
        try (Worker worker = there.worker("jobs", there.inTransaction("jobs", (tx, job) -> {
            Execute.on(tx).execute("insert into effect values (?)", job.attempt());
            return Outcome.done();
        }), options).start()) {
            assertEquals(Map.of("x", End.FAILED), ended(1));
            Testing.advance(penstock, "jobs", Duration.ofHours(1));
            assertEquals(Map.of("x", End.SETTLED), ended(1));
        }
        assertFalse(fails.get());
        assertEquals("2", database.value("select string_agg(attempt::text, ' ') from effect"));
    }

    private interface Before {
        void call(String method) throws SQLException;
    }

    private static <T> T wrapped(Class<T> type, Object real, Before before, java.util.function.UnaryOperator<Object> made) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, args) -> {
            before.call(method.getName());
            try {
                Object result = method.invoke(real, args);
                return method.getName().equals("getConnection") ? made.apply(result) : result;
            } catch (InvocationTargetException e) {
                throw e.getCause();
            }
        }));
    }

    @Test
    void closingGivesBackWhatHasNotBegunAndDrains() throws Exception {
        enqueue("a", "b", "c");
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch goOn = new CountDownLatch(1);
        Worker worker = penstock.worker("jobs", job -> {
            begun.countDown();
            goOn.await();
            return null;
        }, options.concurrency(1)).start();
        begun.await();
        worker.stop();
        while (!database.value("select count(*) from penstock.jobs").equals(2L)) { // given back
            Thread.sleep(10);
        }
        goOn.countDown();
        worker.close();
        assertEquals(1, ends.stream().filter(e -> e.getValue() == End.DONE).count());
        assertEquals(2L, database.value("select count(*) from penstock.jobs"));
        assertTrue(penstock.queue("jobs").claim(9, Duration.ofMinutes(1), "", "", List.of()).jobs().stream().allMatch(j -> j.attempt() == 1));
    }

    @Test
    void oneThatDoesNotHeedTheInterruptIsLeft() throws Exception {
        enqueue("deaf");
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch goOn = new CountDownLatch(1);
        Worker worker = penstock.worker("jobs", job -> {
            begun.countDown();
            while (true) {
                try {
                    goOn.await();
                    return null;
                } catch (InterruptedException e) { // deaf
                }
            }
        }, options.drainTimeout(Duration.ofMillis(10)));
        new Thread(() -> {
            try {
                begun.await();
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
            worker.stop();
        }).start();
        var e = assertThrows(PenstockException.class, worker::run);
        assertTrue(e.getMessage().contains("after the drain time: 1; "), e.getMessage());
        goOn.countDown();
        assertEquals(1L, database.value("select running from penstock.queue_status('jobs')"));
    }

    @Test
    void aStopIsLoggedWithTheJobsThatItInterrupts() throws Exception {
        var lines = new LinkedBlockingQueue<String>();
        enqueue("slow");
        CountDownLatch begun = new CountDownLatch(1);
        try (var log = new Log(r -> lines.add(new java.util.logging.SimpleFormatter().formatMessage(r)))) {
            try (Worker worker = penstock.worker("jobs", job -> {
                begun.countDown();
                new CountDownLatch(1).await();
                return null;
            }, options.drainTimeout(Duration.ofMillis(10))).start()) {
                begun.await();
            }
            assertTrue(lines.contains("the worker of queue jobs stops; running jobs: 1, waits up to 0.01 s"), lines::toString);
            assertTrue(lines.stream().anyMatch(line -> line.matches("the worker of queue jobs aborts the jobs that still run, with the ids \\d+")), lines::toString);
            assertTrue(lines.contains("the worker of queue jobs has stopped; interrupted jobs: 1"), lines::toString);
        }
    }

    /** Nothing else tells that its handler does not see the interrupt. */
    @Test
    void aHandlerThatIgnoresItsTimeoutIsLogged() throws Exception {
        var lines = new LinkedBlockingQueue<String>();
        penstock.enqueue("jobs", NewJob.of("slow").kind("slow").timeout(Duration.ofMillis(10)));
        CountDownLatch told = new CountDownLatch(1);
        try (var log = new Log(r -> {
            String line = r.getLevel() + " " + new java.util.logging.SimpleFormatter().formatMessage(r);
            lines.add(line);
            if (line.contains("ignores the interrupt")) {
                told.countDown();
            }
        }); Worker worker = penstock.worker("jobs", job -> {
            while (true) {
                try {
                    told.await();
                    return null;
                } catch (InterruptedException e) { // as some loops do
                }
            }
        }, options).start()) {
            assertEquals(End.DONE, ended(1).get("slow"));
        }
        assertTrue(lines.stream().anyMatch(line -> line.matches("WARNING job 1, kind slow, attempt 1 of queue jobs runs longer than its timeout of 0.01 s: its handler ignores the interrupt")), lines::toString);
        assertTrue(lines.stream().anyMatch(line -> line.matches("WARNING job 1, kind slow, attempt 1 of queue jobs ran longer than its timeout of 0.01 s: its handler ended after [0-9.]+ s, and its outcome counts")), lines::toString);
    }

    @Test
    void jobsAheadOfHandlersThatHangAreGivenBack() throws Exception {
        enqueue(LongStream.range(0, 60).mapToObj(Long::toString).toArray(String[]::new));
        Queue queue = penstock.queue("jobs");
        AtomicInteger begun = new AtomicInteger();
        CountDownLatch go = new CountDownLatch(1);
        try (Worker worker = penstock.worker("jobs", job -> {
            if (begun.incrementAndGet() > 10) { // quick ones first, so the worker claims ahead
                go.await();
            }
            return null;
        }, options.concurrency(2).batch(20).lease(Duration.ofSeconds(3))).start()) {
            while (begun.get() < 12 || queue.status().running() <= 2) {
                Thread.sleep(10);
            }
            while (queue.status().running() > 2) {
                Thread.sleep(10);
            }
            go.countDown();
            List<End> all = new ArrayList<>();
            while (Collections.frequency(all, End.DONE) < 60) {
                all.add(ends.take().getValue());
            }
            all.removeIf(End.DONE::equals);
            assertEquals(Set.of(End.RELEASED), Set.copyOf(all));
        }
    }

    @Test
    void aJobThatIsCancelledWhileItRunsIsSaidToBe() throws Exception {
        var lines = new LinkedBlockingQueue<String>();
        enqueue("slow");
        CountDownLatch begun = new CountDownLatch(1);
        try (var log = new Log(r -> lines.add(new java.util.logging.SimpleFormatter().formatMessage(r)));
                Worker worker = penstock.worker("jobs", job -> {
                    begun.countDown();
                    new CountDownLatch(1).await();
                    return null;
                }, options.lease(Duration.ofSeconds(3))).start()) {
            begun.await();
            assertEquals(1, penstock.queue("jobs").cancel(List.of(1L)));
            assertEquals(Map.of("slow", End.LOST), ended(1));
        }
        assertTrue(lines.contains("job 1, attempt 1 of queue jobs was removed while it ran, as cancel does"), lines::toString);
    }

    @Test
    void anOutageIsALineWhenItBeginsAndOneWhenItIsOver() throws Exception {
        AtomicBoolean away = new AtomicBoolean();
        AtomicInteger refused = new AtomicInteger();
        Before gate = method -> {
            if (away.get()) {
                refused.incrementAndGet();
                throw new SQLException("away", "08006");
            }
        };
        DataSource failing = wrapped(DataSource.class, database.dataSource, gate, made -> wrapped(Connection.class, made, method -> {
            if (!method.equals("close")) {
                gate.call(method);
            }
        }, same -> same));
        var lines = new LinkedBlockingQueue<String>();
        try (var log = new Log(r -> lines.add(r.getLevel() + " " + new java.util.logging.SimpleFormatter().formatMessage(r)));
             Worker worker = Penstock.on(failing).worker("jobs", job -> null, options).start()) {
            assertTrue(lines.take().contains("has started"));
            for (int n = 0; n < 2; n++) {
                away.set(true);
                String begins = lines.take();
                assertTrue(begins.startsWith("WARNING") && begins.contains("away"), begins);
                assertNotNull(worker.trouble());
                while (refused.get() < 8 * (n + 1)) {
                    Thread.sleep(5);
                }
                away.set(false);
                String ends = lines.take();
                assertTrue(ends.startsWith("INFO") && ends.contains("goes on"), ends);
                assertNull(worker.trouble());
                enqueue("a");
                ended(1);
            }
            assertTrue(lines.isEmpty());
        }
    }

    private DataSource refusing(java.util.function.Supplier<SQLException> why) {
        return wrapped(DataSource.class, database.dataSource, method -> {
            SQLException e = why.get();
            if (e != null) {
                throw e;
            }
        }, same -> same);
    }

    @Test
    void aWorkerThatStartsWhileTheDatabaseIsDownTriesUntilItCan() throws Exception {
        var away = new AtomicBoolean(true);
        var refused = new AtomicInteger();
        DataSource down = refusing(() -> away.get() && refused.incrementAndGet() > 0 ? new SQLException("connection refused", "08001") : null);
        var lines = new LinkedBlockingQueue<String>();
        enqueue("a");
        try (var log = new Log(r -> lines.add(r.getLevel() + " " + new java.util.logging.SimpleFormatter().formatMessage(r)));
             Worker worker = Penstock.on(down).worker("jobs", job -> null, options).start()) {
            assertEquals("WARNING the worker of queue jobs cannot reach the database, and tries until it can: connection refused (08001) (start the database, or correct its address)", lines.take());
            while (refused.get() < 4) {
                Thread.sleep(5);
            }
            assertFalse(worker.isWorking());
            assertEquals("08001", ((PenstockException) worker.trouble()).sqlState());
            assertEquals("08001", assertThrows(PenstockException.class, worker::check).sqlState());
            away.set(false);
            assertTrue(lines.take().startsWith("INFO the worker of queue jobs goes on, "));
            assertTrue(lines.take().contains("has started"));
            assertEquals(Map.of("a", End.DONE), ended(1));
            assertTrue(worker.isWorking());
            assertNull(worker.trouble());
        }
    }

    @Test
    void aWorkerThatWaitsForItsDatabaseStops() throws Exception {
        var worker = Penstock.on(refusing(() -> new SQLException("Connection is not available, request timed out", new SQLException("starting up", "57P03")))).worker("jobs", job -> null, options).start();
        while (worker.trouble() == null) {
            Thread.sleep(5);
        }
        worker.close();
        assertFalse(worker.isWorking());
    }

    /** Only time cures an outage. Another attempt with a wrong password, or one that a pool has tried with, fails as well. */
    @Test
    void whatTimeDoesNotCureEndsAWorkerAtOnce() {
        var wrong = new SQLException("password authentication failed", "28P01");
        for (SQLException why : List.of(wrong, new java.sql.SQLTransientConnectionException("Connection is not available, request timed out", "28P01", wrong),
            new SQLException("the server asks for a password", "08004"), new SQLException("no such database", "3D000"))) {
            assertSame(why, assertThrows(PenstockException.class, () -> Penstock.on(refusing(() -> why)).worker("jobs", job -> null, options).run()).getCause());
        }
        assertThrows(NotFoundException.class, () -> penstock.worker("nowhere", job -> null, options).run());
    }

    @Test
    void aWorkerWithoutTheRightToItsQueueEndsWithTheGrant() throws Exception {
        database.execute("create role few; grant usage on schema penstock to few");
        try {
            var few = new org.postgresql.ds.PGSimpleDataSource();
            few.setUrl(database.dataSource.getURL());
            few.setUser(database.dataSource.getUser());
            few.setPassword(database.dataSource.getPassword());
            few.setOptions("-c role=few");
            var refused = assertThrows(PenstockException.class, () -> Penstock.on(few).worker("jobs", job -> null, options).run());
            assertTrue(refused.getMessage().endsWith("penstock queue grant jobs ROLE --work)"), refused.getMessage());
        } finally {
            database.execute("drop owned by few; drop role few");
        }
    }

    @Test
    void anErrorOfAnOutageIsLoggedOnce() throws Exception {
        Outage.again = 0;
        var lines = new LinkedBlockingQueue<String>();
        try (var log = new Log(r -> lines.add(new java.util.logging.SimpleFormatter().formatMessage(r)))) {
            var outage = new Outage("jobs");
            for (String function : List.of("claim", "maintain", "claim", "maintain")) {
                outage.failed("cannot " + function, new RuntimeException("permission denied for function _jobs." + function), "");
            }
            assertEquals(2, lines.size(), lines::toString);
        } finally {
            Outage.again = 10_000_000_000L;
        }
    }

    @Test
    void aJobThatIsDoneIsLoggedAtDebug() throws Exception {
        var lines = new LinkedBlockingQueue<String>();
        var logger = java.util.logging.Logger.getLogger("io.penstock");
        enqueue("a");
        try (var log = new Log(r -> lines.add(r.getLevel() + " " + r.getMessage()))) {
            logger.setLevel(java.util.logging.Level.FINE);
            try (Worker worker = penstock.worker("jobs", job -> null, options).start()) {
                ended(1);
            }
            assertTrue(lines.stream().anyMatch(line -> line.matches("FINE job \\d+, attempt 1 of queue jobs is done")), lines::toString);
        } finally {
            logger.setLevel(null);
        }
    }

    @Test
    void whatAHandlerThrowsIsLoggedWithItsStack() throws Exception {
        var failures = new LinkedBlockingQueue<java.util.logging.LogRecord>();
        enqueue("a", "b");
        try (var log = new Log(r -> {
            if (r.getMessage().contains(" failed: ")) {
                failures.add(r);
            }
        }); Worker worker = penstock.worker("jobs", job -> {
            if (job.text().equals("b")) {
                return Outcome.retry(Duration.ofHours(1), "later");
            }
            throw new IllegalStateException("mailbox full");
        }, options).start()) {
            for (Set<Boolean> seen = new HashSet<>(); seen.size() < 2;) {
                java.util.logging.LogRecord r = failures.take();
                boolean chosen = r.getMessage().endsWith(" of queue jobs failed: later; retry in 3600 s");
                assertTrue(chosen || r.getMessage().contains(" of queue jobs failed: java.lang.IllegalStateException: mailbox full (WorkTest.java:"), r.getMessage());
                assertEquals(chosen ? null : IllegalStateException.class, r.getThrown() == null ? null : r.getThrown().getClass());
                seen.add(chosen);
            }
        }
    }

    /** What the client logs while this is open. */
    private static final class Log extends java.util.logging.Handler implements AutoCloseable {
        private final java.util.logging.Logger logger = java.util.logging.Logger.getLogger("io.penstock");
        private final Consumer<java.util.logging.LogRecord> told;

        Log(Consumer<java.util.logging.LogRecord> told) {
            this.told = told;
            logger.addHandler(this);
        }

        @Override
        public void publish(java.util.logging.LogRecord r) {
            told.accept(r);
        }

        @Override
        public void flush() {}

        @Override
        public void close() {
            logger.removeHandler(this);
        }
    }
}
