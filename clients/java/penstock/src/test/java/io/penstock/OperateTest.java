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
        assertEquals("42704", assertThrows(PenstockException.class, () -> queue.pauseSchedule("nightly")).sqlState());
        assertEquals("22023", assertThrows(PenstockException.class, () -> queue.schedule("bad", "99 * * * *", NewJob.of(""))).sqlState());
        assertThrows(FieldException.class, () -> queue.schedule("bad", "@daily", NewJob.of("").priority(99)));
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
        penstock.enqueueMany("jobs", List.of("throws", "asks", "slow", "returns", "quick").stream().map(kind -> NewJob.of("").kind(kind)).toList());
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
            "quick", Handler.timeout(Duration.ofMinutes(1), job -> null)));
        try (Worker worker = penstock.worker("jobs", handler, new WorkOptions().onEnd((job, end) -> ends.add(Map.entry(job.kind() + job.attempt(), end)))).start()) {
            Map<String, End> all = new java.util.HashMap<>();
            while (all.size() < 6) {
                var one = ends.take();
                all.put(one.getKey(), one.getValue());
            }
            assertEquals(Map.of("throws1", End.DEAD, "asks1", End.FAILED, "asks2", End.DEAD, "slow1", End.DEAD, "returns1", End.DONE, "quick1", End.DONE), all);
        }
        assertEquals(List.of("java.lang.IllegalStateException: no", "again", "java.util.concurrent.TimeoutException: the job ran longer than its timeout of PT0.02S"),
            queue.deadJobs(10, 0).stream().map(DeadJob::error).toList());
        assertThrows(FieldException.class, () -> Handler.maxAttempts(0, job -> null));
        assertThrows(FieldException.class, () -> Handler.timeout(Duration.ZERO, job -> null));
        assertTrue(queue.deadJobs(1, 0).get(0).kind().equals("throws"));
    }
}
