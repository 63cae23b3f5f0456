package io.penstock;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.penstock.WorkOptions.End;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

@Timeout(value = 3, unit = TimeUnit.MINUTES) // ends what has failed
class OperateTest {
    private Database database;
    private Penstock penstock;
    private Queue queue;

    @BeforeEach
    void make() throws Exception {
        database = new Database();
        penstock = Penstock.on(database.dataSource);
        queue = penstock.queue("jobs");
    }

    @AfterEach
    void drop() throws Exception {
        database.close();
    }

    @Test
    void schedulesAreMadePausedRunAndListed() throws Exception {
        Instant next = queue.schedule("nightly", "@yearly", NewJob.of("{}").kind("digest").key("k").groupKey("g").priority(-3).dedupKey("d").headers(Map.of("h", "1")), true);
        assertTrue(next.isAfter(Instant.now()));
        Schedule made = queue.schedules().get(0);
        assertArrayEquals("{}".getBytes(StandardCharsets.UTF_8), made.payload());
        assertEquals(new Schedule("nightly", "@yearly", next, false, true, null, "digest", "k", "g", -3, "d", Map.of("h", "1", "penstock-kind", "digest"), made.payload()), made);
        queue.pauseSchedule("nightly");
        Enqueued job = queue.runSchedule("nightly");
        assertFalse(job.deduplicated());
        try (var connection = database.dataSource.getConnection()) {
            connection.setAutoCommit(false);
            assertEquals(new Enqueued(job.id(), true), Penstock.on(connection).queue("jobs").runSchedule("nightly"));
            connection.rollback();
        }
        assertTrue(queue.schedules().get(0).paused());
        assertEquals(job.id(), queue.schedules().get(0).lastJob());
        assertEquals(next, queue.resumeSchedule("nightly"));
        queue.schedule("other", "@hourly", NewJob.of("x"));
        assertEquals(List.of("nightly", "other"), queue.schedules().stream().map(Schedule::name).toList());
        assertNull(queue.schedules().get(1).key());
        queue.unschedule("nightly");
        assertEquals("42704", assertThrows(NotFoundException.class, () -> queue.pauseSchedule("nightly")).sqlState());
        assertEquals("22023", assertThrows(PenstockException.class, () -> queue.schedule("bad", "99 * * * *", NewJob.of(""))).sqlState());
        assertThrows(FieldException.class, () -> queue.schedule("bad", "@daily", NewJob.of("").priority(99)));
    }

    @Test
    void aQueueIsMadeAndItsJobsAreCounted() throws Exception {
        Queue made = penstock.queue("made");
        made.create("lifo");
        assertEquals("42P07", assertThrows(PenstockException.class, () -> made.create("fifo")).sqlState());
        assertEquals("22023", assertThrows(PenstockException.class, () -> penstock.queue("other").create("random")).sqlState());
        assertEquals(new QueueStatus(0, 0, 0, 0, 0, Duration.ZERO, 0), made.status());
        penstock.enqueueMany("made", List.of(NewJob.of("a"), NewJob.of("b"), NewJob.of("c").notBefore(Instant.now().plusSeconds(3600)), NewJob.of("d").key("k"), NewJob.of("e").key("k")));
        List<Job> claimed = made.claim(2, Duration.ofMinutes(1), "", "", null).jobs();
        assertEquals("k", claimed.get(0).key()); // the last in is the first out
        made.deadLetter(claimed.get(1).lease(), "no");
        QueueStatus status = made.status();
        assertEquals(new QueueStatus(1, 1, 1, 1, 1, status.oldest(), 0), status);
        assertTrue(status.oldest().compareTo(Duration.ZERO) > 0);
        assertThrows(NotFoundException.class, () -> penstock.queue("missing").status());
    }

    @Test
    void deadLettersAreListedRetriedAndDiscarded() throws Exception {
        penstock.enqueueMany("jobs", List.of(NewJob.of("1").kind("welcome"), NewJob.of("2"), NewJob.of("3")));
        for (Job job : queue.claim(3, Duration.ofMinutes(1), "", "", null).jobs()) {
            queue.deadLetter(job.lease(), "no " + job.text());
        }
        List<DeadJob> first = queue.deadJobs(2, 0);
        assertEquals(List.of("no 1", "no 2"), first.stream().map(DeadJob::error).toList());
        assertEquals(List.of("welcome", ""), first.stream().map(DeadJob::kind).toList());
        assertEquals(1, first.get(0).attempt());
        assertFalse(first.get(0).diedAt().isBefore(first.get(0).createdAt()));
        assertEquals(List.of("no 3"), queue.deadJobs(2, first.get(1).id()).stream().map(DeadJob::error).toList());
        assertEquals(1, queue.retryDeadJobs(List.of(first.get(0).id())));
        assertEquals(1, queue.discardDeadJobs(first.stream().map(DeadJob::id).toList()));
        assertEquals(1, queue.deadJobs(100, 0).size());
    }

    @Test
    void aJobIsFoundWhereItIs() throws Exception {
        long id = penstock.enqueue("jobs", NewJob.of("secret").kind("export").key("k")).id();
        FoundJob ready = queue.findJob(id).orElseThrow();
        assertEquals(new FoundJob(id, "ready", "export", "k", "", 0, 0, ready.createdAt(), null, null, null, null, null, null), ready);
        Job job = queue.claim(1, Duration.ofMinutes(1), "", "w", null).jobs().get(0);
        queue.report(job.lease(), "{\"rows\": 7}");
        FoundJob running = queue.findJob(id).orElseThrow();
        assertEquals(List.of("running", 1, "w", "{\"rows\": 7}"), List.of(running.state(), running.attempt(), running.worker(), running.report()));
        assertTrue(running.claimedAt().isBefore(running.until()));
        queue.deadLetter(job.lease(), "no more");
        FoundJob dead = queue.findJob(id).orElseThrow();
        assertEquals(List.of("dead", "no more"), List.of(dead.state(), dead.error()));
        assertFalse(dead.endedAt().isBefore(dead.createdAt()));
        assertEquals(1, queue.discardDeadJobs(List.of(id)));
        assertTrue(queue.findJob(id).isEmpty());
    }

    @Test
    void jobsAreCancelledAndTheQueueIsPaused() throws Exception {
        List<Long> ids = penstock.enqueueMany("jobs", List.of(NewJob.of("1"), NewJob.of("2"), NewJob.of("3"))).stream().map(Enqueued::id).toList();
        queue.pause();
        assertEquals(List.of(), queue.claim(3, Duration.ofMinutes(1), "", "", null).jobs());
        queue.resume();
        assertEquals(1, queue.cancel(List.of(ids.get(0), 4711L)));
        assertEquals(ids.subList(1, 3), queue.claim(3, Duration.ofMinutes(1), "", "", null).jobs().stream().map(Job::id).toList());
        assertEquals(2, queue.cancel(ids));
        assertThrows(PenstockException.class, () -> penstock.queue("missing").pause());
    }

    @Test
    void aRoleWithFewRightsLearnsWhoMay() throws Exception {
        try (var connection = database.dataSource.getConnection()) {
            Execute.on(connection).execute("set role pg_read_all_data");
            Penstock few = Penstock.on(Execute.on(connection));
            var e = assertThrows(PenstockException.class, () -> few.queue("jobs").schedule("nightly", "@daily", NewJob.of("")));
            assertEquals("42501", e.sqlState());
            assertTrue(e.getMessage().endsWith("permission denied for function schedule_bytes (schedules need the role that owns the schema; it can run: penstock schedule set QUEUE NAME --cron TEXT)"), e.getMessage());
            e = assertThrows(PenstockException.class, () -> few.queue("new").create("fifo"));
            assertTrue(e.getMessage().endsWith(" (a queue is made by the role that owns the schema; it can run: penstock queue create NAME)"), e.getMessage());
            var calls = Map.<String, List<Executable>>of(
                "jobs ROLE --enqueue", List.of(() -> few.enqueue("jobs", NewJob.of("")), () -> few.queue("jobs").findJob(1)),
                "jobs ROLE --work", List.of(() -> few.queue("jobs").claim(1, Duration.ofMinutes(1), "", "", null), () -> few.queue("jobs").holdGroup("g", Duration.ofSeconds(1), "")),
                "jobs ROLE --operate", List.of(() -> few.queue("jobs").cancel(List.of(1L)), () -> few.queue("jobs").discardDeadJobs(List.of(1L)), () -> few.queue("jobs").status()));
            calls.forEach((grant, all) -> all.forEach(call -> {
                var refused = assertThrows(PenstockException.class, call);
                assertTrue(refused.getMessage().endsWith(" (the role that owns the schema can run: penstock queue grant " + grant + ")"), refused.getMessage());
            }));
            Execute.on(connection).execute("reset role");
        }
    }

    /** Of each function and sequence of a queue and an inbox that a right opens, an error names a right that does. */
    @Test
    void aMissingRightNamesOneThatGivesIt() throws Exception {
        try (var connection = database.dataSource.getConnection()) {
            connection.setAutoCommit(false);
            var tx = Execute.on(connection);
            for (var grant : List.of("enqueue enqueuer jobs", "work worker jobs", "operate operator jobs", "consume consumer billing")) {
                String[] words = grant.split(" ");
                tx.execute("create role may_" + words[0]);
                tx.execute("select penstock.grant_" + words[1] + "('" + words[2] + "', 'may_" + words[0] + "')");
            }
            tx.execute("select penstock.grant_inbox_operator('billing', 'may_operate')");
            var all = tx.execute("select own, array_to_string(array(select r from unnest(array['enqueue', 'work', 'operate', 'consume']) r"
                + " where case kind when 'f' then has_function_privilege('may_' || r, oid, 'execute') else has_sequence_privilege('may_' || r, oid, 'usage, select') end), ' ')"
                + " from (select 'f' as kind, oid, proname as own from pg_proc where pronamespace = 'penstock'::regnamespace and not has_function_privilege('public', oid, 'execute')"
                + " union all select 'S', oid, relname from pg_class where relnamespace = 'penstock'::regnamespace and relkind = 'S') o where own like '\\_jobs.%' or own like '\\_\\_inbox.%' or own = 'dequeue_jobs'");
            connection.rollback();
            int opened = 0;
            for (Object[] row : all) {
                String own = (String) row[0];
                if (!row[1].equals("")) { // the others are the owner's alone
                    opened++;
                    String named = PenstockException.of(new java.sql.SQLException("permission denied for function " + own, "42501")).getMessage().replaceAll(".* --|\\)$", "");
                    assertTrue(List.of(((String) row[1]).split(" ")).contains(named), own + " needs one of " + row[1] + ", and the error names " + named);
                }
            }
            assertTrue(opened > 30, "opened: " + opened);
        }
    }

    @Test
    void policiesAndHoldsOfGroupsAreSetAndListed() throws Exception {
        queue.setGroup("a", new GroupLimits().maxRunning(1).weight(3));
        queue.setGroup("b", new GroupLimits().rate(60, Duration.ofMinutes(1)).burst(10));
        queue.setGroup("*", new GroupLimits().maxRunning(2));
        queue.holdGroup("a", Duration.ofHours(1), "429");
        List<GroupPolicy> policies = queue.groupPolicies(1000, "");
        Instant until = policies.get(1).heldUntil();
        assertTrue(Duration.between(Instant.now(), until).minus(Duration.ofHours(1)).abs().compareTo(Duration.ofMinutes(10)) < 0, until.toString());
        assertEquals(List.of(
            new GroupPolicy("*", 2, null, null, null, null, null, null, null),
            new GroupPolicy("a", 1, null, null, null, 3, null, until, "429"),
            new GroupPolicy("b", null, 60, Duration.ofMinutes(1), 10, null, 10, null, null)), policies);
        assertEquals(List.of("b"), queue.groupPolicies(1, "a").stream().map(GroupPolicy::groupKey).toList());
        penstock.enqueueMany("jobs", List.of(NewJob.of("1").groupKey("a"), NewJob.of("2").groupKey("a")));
        assertEquals(0, claimed());
        queue.holdGroup("a", Duration.ZERO, null);
        assertEquals(1, claimed());
        queue.setGroup("a", new GroupLimits());
        assertEquals(1, claimed());
        assertThrows(FieldException.class, () -> new GroupLimits().maxRunning(0));
        assertThrows(FieldException.class, () -> queue.holdGroup("b", Duration.ofSeconds(-1), null));
        assertThrows(FieldException.class, () -> queue.holdGroup("b", Duration.ofSeconds(1), "x".repeat(1025)));
        assertEquals("22023", assertThrows(PenstockException.class, () -> queue.holdGroup("*", Duration.ofSeconds(1), null)).sqlState());
        assertEquals("hold group for 3600 s: 429", Outcome.holdGroup(Duration.ofHours(1), "429").toString());
    }

    private int claimed() {
        return queue.claim(2, Duration.ofMinutes(1), "a", "", null).jobs().size();
    }

    @Test
    void aHandlerHoldsTheGroupOfItsJob() throws Exception {
        List<String> ran = new java.util.concurrent.CopyOnWriteArrayList<>();
        List<End> ends = new java.util.concurrent.CopyOnWriteArrayList<>();
        java.util.concurrent.atomic.AtomicBoolean refused = new java.util.concurrent.atomic.AtomicBoolean();
        penstock.enqueueMany("jobs", java.util.stream.IntStream.range(0, 50).mapToObj(n -> NewJob.of("" + n).groupKey("a")).toList());
        Handler handler = job -> {
            if (job.attempt() != 1) {
                throw new AssertionError(job + " has attempt " + job.attempt());
            }
            if (ran.size() == 10 && refused.compareAndSet(false, true)) { // by now some are claimed ahead
                throw Outcome.holdGroup(Duration.ofHours(1), "429 " + "ä".repeat(1024));
            }
            ran.add(job.text());
            return null;
        };
        try (Worker worker = penstock.worker("jobs", handler, new WorkOptions().groupKey("a").concurrency(1).onEnd((job, end) -> ends.add(end))).start()) {
            while (!ends.contains(End.SNOOZED) || (Long) database.value("select running from penstock.queue_status('jobs')") > 0) {
                Thread.sleep(5);
            }
            GroupPolicy held = queue.groupPolicies(10, "").get(0);
            assertEquals("429 " + "ä".repeat(510), held.reason());
            assertEquals(10, ran.size());
            queue.holdGroup("a", Duration.ZERO, null);
            while (java.util.Collections.frequency(ends, End.DONE) < 50) {
                Thread.sleep(5);
            }
        }
        assertEquals(50, new java.util.HashSet<>(ran).size());
        assertEquals(50, ran.size());
        assertEquals(1, java.util.Collections.frequency(ends, End.SNOOZED));
        assertTrue(java.util.Set.of(End.DONE, End.SNOOZED, End.RELEASED).containsAll(ends), ends.toString());
    }

    @Test
    void whereNoGroupCanBeHeldOnlyTheJobWaits() throws Exception {
        LinkedBlockingQueue<End> ends = new LinkedBlockingQueue<>();
        penstock.enqueue("jobs", NewJob.of("").groupKey("*"));
        try (Worker worker = penstock.worker("jobs", job -> Outcome.holdGroup(Duration.ofHours(1), null), new WorkOptions().groupKey("*").onEnd((job, end) -> ends.add(end))).start()) {
            assertEquals(End.SNOOZED, ends.take());
        }
        assertEquals(1L, database.value("select delayed from penstock.queue_status('jobs')"));
        assertEquals(List.of(), queue.groupPolicies(10, ""));
    }

    @Test
    void aWorkerIsListedWhileItLives() throws Exception {
        LinkedBlockingQueue<End> ends = new LinkedBlockingQueue<>();
        String said = "select string_agg(l.worker || ' ' || l.report::text, e'\\n' order by l.lease_until) from penstock._lease l where l.queue < 0";
        try (Worker worker = penstock.worker("jobs", job -> job.text().isEmpty() ? null : Outcome.retry(Duration.ofHours(1)), new WorkOptions().worker("w \"1\"").concurrency(3)
            .onEnd((job, end) -> ends.add(end))).start()) {
            Object first = null;
            while (first == null) {
                first = database.value(said);
                Thread.onSpinWait();
            }
            assertTrue(first.toString().startsWith("w \"1\" {") && first.toString().contains("penstock (Java) ") && first.toString().contains("\"concurrency\": 3"), first.toString());
            penstock.enqueueMany("jobs", List.of(NewJob.of(""), NewJob.of("bad")));
            ends.take();
            ends.take();
        }
        String last = database.value(said).toString().lines().reduce((a, b) -> b).orElseThrow();
        for (String part : List.of("\"stopped\": true", "\"done\": 1", "\"failed\": 1", "\"dead\": 0", "\"running\": 0", "\"claimed_at\"")) {
            assertTrue(last.contains(part), last);
        }
    }

    @Test
    void aHandlerHasLimitsOfItsOwn() throws Exception {
        LinkedBlockingQueue<Map.Entry<String, End>> ends = new LinkedBlockingQueue<>();
        CountDownLatch never = new CountDownLatch(1);
        penstock.enqueueMany("jobs", List.of("throws", "asks", "slow", "returns", "quick", "unreadable").stream().map(kind -> NewJob.of("").kind(kind)).toList());
        Handler handler = Handler.byKind(Map.of(
            "throws", Handler.maxAttempts(1, job -> { throw new IllegalStateException("no"); }),
            "asks", Handler.maxAttempts(2, job -> Outcome.retry(Duration.ZERO, "again")),
            "slow", Handler.maxAttempts(1, Handler.timeout(Duration.ofMillis(20), job -> {
                never.await();
                return null;
            })),
            "returns", Handler.timeout(Duration.ofMillis(20), job -> {
                try {
                    never.await();
                } catch (InterruptedException e) {
                    return Outcome.done();
                }
                return null;
            }),
            "unreadable", Handler.maxAttempts(1, job -> {
                throw new IllegalStateException() {
                    private static final long serialVersionUID = 1;

                    @Override
                    public String toString() {
                        throw new StackOverflowError();
                    }
                };
            }),
            "quick", Handler.timeout(Duration.ofSeconds(Long.MAX_VALUE), job -> null)));
        try (Worker worker = penstock.worker("jobs", handler, new WorkOptions().onEnd((job, end) -> ends.add(Map.entry(job.kind() + job.attempt(), end)))).start()) {
            Map<String, End> all = new java.util.HashMap<>();
            while (all.size() < 7) {
                var one = ends.take();
                all.put(one.getKey(), one.getValue());
            }
            assertEquals(Map.of("throws1", End.DEAD, "asks1", End.FAILED, "asks2", End.DEAD, "slow1", End.DEAD, "returns1", End.DONE, "quick1", End.DONE, "unreadable1", End.DEAD), all);
        }
        assertEquals(List.of("java.lang.IllegalStateException: no", "again", "java.util.concurrent.TimeoutException: the job ran longer than its timeout of 0.02 s",
            "io.penstock.OperateTest$1, whose text throws java.lang.StackOverflowError"), queue.deadJobs(10, 0).stream().map(d -> d.error().replaceFirst("(?s) \\(.*", "")).toList());
        assertThrows(FieldException.class, () -> Handler.maxAttempts(0, job -> null));
        assertThrows(FieldException.class, () -> Handler.timeout(Duration.ZERO, job -> null));
        assertTrue(queue.deadJobs(1, 0).get(0).kind().equals("throws"));
    }

    @Test
    void aJobHasItsOwnTimeout() throws Exception {
        LinkedBlockingQueue<String> ends = new LinkedBlockingQueue<>();
        CountDownLatch never = new CountDownLatch(1);
        for (String payload : List.of("throws", "returns")) {
            penstock.enqueue("jobs", NewJob.of(payload).timeout(Duration.ofMillis(50)).maxAttempts(1));
        }
        penstock.enqueue("jobs", NewJob.of("throws").timeout(Duration.ofMillis(50)));
        Handler handler = Handler.maxAttempts(1, Handler.backoff(attempt -> Duration.ofHours(1), Handler.timeout(Duration.ofHours(1), job -> {
            try {
                never.await();
            } catch (InterruptedException e) {
                assertEquals(Job.Aborted.TIMEOUT, job.aborted());
                if (job.text().equals("throws")) {
                    throw new IllegalStateException("no connection");
                }
            }
            return null;
        })));
        try (Worker worker = penstock.worker("jobs", handler, new WorkOptions().onEnd((job, end) -> ends.add(job.text() + " " + end))).start()) {
            assertEquals(List.of("returns DONE", "throws DEAD", "throws DEAD"), java.util.stream.Stream.of(ends.take(), ends.take(), ends.take()).sorted().toList());
        }
        for (DeadJob dead : queue.deadJobs(10, 0)) {
            assertTrue(dead.error().matches("java.util.concurrent.TimeoutException: the job ran longer than its timeout of 0.05 s \\(OperateTest.java:\\d+ in aJobHasItsOwnTimeout\\)"
                + "\ncaused by java.lang.IllegalStateException: no connection \\(.*\\)"), dead::error);
        }
        assertEquals(2, queue.deadJobs(10, 0).size());
    }

    @Test
    void aKindHasItsOwnBackoff() throws Exception {
        LinkedBlockingQueue<End> ends = new LinkedBlockingQueue<>();
        penstock.enqueueMany("jobs", List.of(NewJob.of("throws"), NewJob.of("asks"), NewJob.of("says when")));
        Handler handler = Handler.backoff(attempt -> Duration.ofHours(attempt), job -> {
            switch (job.text()) {
                case "asks" -> { return Outcome.retry(); }
                case "says when" -> throw Outcome.retry(Duration.ofDays(1));
                default -> throw new IllegalStateException("no");
            }
        });
        try (Worker worker = penstock.worker("jobs", handler, new WorkOptions().onEnd((job, end) -> ends.add(end))).start()) {
            assertEquals(List.of(End.FAILED, End.FAILED, End.FAILED), List.of(ends.take(), ends.take(), ends.take()));
        }
        assertEquals("1 1 24", database.value("select string_agg(ceil(extract(epoch from due - now()) / 3600)::text, ' ' order by due) from penstock._scheduled"));
    }

    @Test
    void aHeldGroupLeavesTheOthers() throws Exception {
        LinkedBlockingQueue<String> ends = new LinkedBlockingQueue<>();
        penstock.enqueueMany("jobs", java.util.stream.IntStream.range(0, 120).mapToObj(n -> NewJob.of(n == 40 ? "hold" : "").groupKey(n % 2 == 0 ? "a" : "b")).toList());
        Handler handler = job -> job.text().isEmpty() ? null : Outcome.holdGroup(Duration.ofHours(1), null);
        int ofB = 0;
        int ofA = 0;
        try (Worker worker = penstock.worker("jobs", handler, new WorkOptions().allGroups().concurrency(1).onEnd((job, end) -> ends.add(job.groupKey() + end))).start()) {
            for (boolean held = false; !held || ofB < 60;) {
                String end = ends.take();
                assertFalse(end.equals("bRELEASED"), "a job of another group was given back");
                held |= end.equals("aSNOOZED");
                ofA += end.equals("aDONE") ? 1 : 0;
                ofB += end.equals("bDONE") ? 1 : 0;
            }
        }
        assertEquals((long) (60 - ofA), database.value("select ready from penstock.queue_status('jobs')"));
    }
}
