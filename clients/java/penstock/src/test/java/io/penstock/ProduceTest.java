package io.penstock;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import javax.sql.DataSource;
import org.jooq.SQLDialect;
import org.jooq.impl.DSL;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

class ProduceTest {
    private static Database database;
    private Connection tx;
    private Penstock penstock;

    @BeforeAll
    static void make() throws Exception {
        database = new Database();
    }

    @AfterAll
    static void drop() throws Exception {
        database.close();
    }

    @BeforeEach
    void begin() throws Exception {
        tx = database.dataSource.getConnection();
        tx.setAutoCommit(false);
        penstock = Penstock.on(tx);
    }

    @AfterEach
    void rollback() throws Exception {
        tx.rollback();
        tx.close();
    }

    @Test
    void whatWasPublishedIsFound() {
        Map<String, String> headers = Map.of("a", "\"quotes\" \\ \u0001 ü \uD83D\uDE00", "b", "{NULL,}");
        penstock.publish("orders", Message.of(new byte[] {0, -1}).key("ann").topic("placed").id("1").headers(headers));
        penstock.publish("orders", Message.of("").topic("other"));
        Message found = Testing.requirePublished(penstock, "orders", "placed", "ann");
        assertArrayEquals(new byte[] {0, -1}, found.payload());
        assertEquals(headers, found.headers());
        assertTrue(assertThrows(AssertionError.class, () -> Testing.requirePublished(penstock, "orders", "placed", "bob")).getMessage().contains("topic other"));
        Testing.requireNotPublished(penstock, "orders", "placed", "bob");
        assertTrue(assertThrows(AssertionError.class, () -> Testing.requireNotPublished(penstock, "orders", null, "ann")).getMessage().contains("[topic placed, key ann]"));
    }

    @Test
    void jobsCarryEverything() {
        Instant due = Instant.now().minusSeconds(60);
        penstock.enqueueMany("jobs", List.of(
            NewJob.of("payload").key("k").priority(-3).notBefore(due).dedupKey("d").headers(Map.of("h", "v")),
            NewJob.of("later").notBefore(due.plusSeconds(3600))));
        Job job = Testing.runOne(penstock, "jobs", j -> null).job();
        assertEquals(List.of("payload", "k", "", -3, 1, Map.of("h", "v")), List.of(job.text(), job.key(), job.groupKey(), job.priority(), job.attempt(), job.headers()));
        assertThrows(AssertionError.class, () -> Testing.runOne(penstock, "jobs", j -> null));
    }

    @Test
    void uniqueJobsAndLimitsOfOneJob() {
        Instant deadline = Instant.parse("2100-01-01T00:00:00Z");
        NewJob limited = NewJob.of("a").uniqueKey("u").maxAttempts(3).timeout(Duration.ofMillis(1500)).deadline(deadline).headers(Map.of("h", "v"));
        Enqueued first = penstock.enqueue("jobs", limited);
        List<Enqueued> more = penstock.enqueueMany("jobs", List.of(NewJob.of("b").uniqueKey("u").onConflict("debounce").debounceMax(Duration.ofMinutes(1)),
            NewJob.of("late").deadline(Instant.EPOCH)));
        assertEquals(List.of(false, true, false), List.of(first.deduplicated(), more.get(0).deduplicated(), more.get(1).deduplicated()));
        assertEquals(first.id(), more.get(0).id());
        assertEquals(Map.of("h", "v", "penstock-unique-key", "u", "penstock-max-attempts", "3", "penstock-timeout", "1.5", "penstock-deadline", "2100-01-01T00:00:00Z"), limited.headers());
        Job job = Testing.runOne(penstock, "jobs", j -> null).job();
        assertEquals(List.of("b", "u", Map.of("penstock-unique-key", "u", "penstock-on-conflict", "debounce", "penstock-debounce-max", "60")), List.of(job.text(), job.key(), job.headers()));
        assertThrows(AssertionError.class, () -> Testing.runOne(penstock, "jobs", j -> null)); // the other one has expired
        assertEquals("uniqueKey", assertThrows(FieldException.class, () -> penstock.enqueue("jobs", limited.key("k"))).field());
        assertEquals("onConflict", assertThrows(FieldException.class, () -> limited.onConflict("merge")).field());
        assertEquals("onConflict", assertThrows(FieldException.class, () -> penstock.enqueue("jobs", NewJob.of("").onConflict("replace"))).field());
        assertEquals("debounceMax", assertThrows(FieldException.class, () -> penstock.enqueue("jobs", limited.debounceMax(Duration.ofMinutes(1)))).field());
        assertEquals("maxAttempts", assertThrows(FieldException.class, () -> limited.maxAttempts(0)).field());
        assertEquals("timeout", assertThrows(FieldException.class, () -> limited.timeout(Duration.ZERO)).field());
        assertEquals("holds", assertThrows(FieldException.class, () -> limited.holds(0)).field());
        assertEquals("waitsFor", assertThrows(FieldException.class, () -> limited.waitsFor(Collections.nCopies(101, 1L).toArray(Long[]::new))).field());
        assertEquals("onDead", assertThrows(FieldException.class, () -> limited.onDead("die")).field());
    }

    @Test
    void outcomesAreComparedAndShown() {
        assertEquals(Outcome.snooze(Duration.ofHours(8)), Outcome.snooze(Duration.ofHours(8)));
        assertEquals(Outcome.deadLetter("no").hashCode(), Outcome.deadLetter("no").hashCode());
        assertNotEquals(Outcome.snooze(Duration.ofHours(8)), Outcome.snooze(Duration.ofHours(7)));
        assertNotEquals(Outcome.retry(Duration.ofHours(8)), Outcome.snooze(Duration.ofHours(8)));
        assertNotEquals(Outcome.deadLetter("no"), Outcome.deadLetter("yes"));
        assertEquals("[done, retry, retry in 60 s, retry in 300 s: busy, snooze in 28800 s, dead letter: no such user]", List.of(Outcome.done(), Outcome.retry(), Outcome.retry(Duration.ofMinutes(1)),
            Outcome.retry(Duration.ofMinutes(5), "busy"), Outcome.snooze(Duration.ofHours(8)), Outcome.deadLetter("no such user")).toString());
    }

    @Test
    void oneRunsInTheTestsTransaction() {
        penstock.enqueue("jobs", NewJob.of("x"));
        penstock.enqueue("jobs", NewJob.of("y"));
        assertTrue(((Outcome) Testing.runOne(penstock, "jobs", j -> null).outcome()).endsJob());
        assertEquals("no", Testing.runOne(penstock, "jobs", j -> { throw new Exception("no"); }).outcome().getMessage());
    }

    @Test
    void aRetryComesAfterItsPauseAndADeadLetterStays() {
        penstock.enqueue("jobs", NewJob.of("x").maxAttempts(2));
        Handler failing = Handler.backoff(attempt -> Duration.ofMinutes(10), j -> {
            throw new IllegalStateException("mailbox full");
        });
        assertEquals("java.lang.IllegalStateException: mailbox full", Testing.runOne(penstock, "jobs", failing).outcome().toString());
        assertThrows(AssertionError.class, () -> Testing.runOne(penstock, "jobs", failing));
        Testing.advance(penstock, "jobs", Duration.ofMinutes(10));
        assertEquals(2, Testing.runOne(penstock, "jobs", failing).job().attempt());
        DeadJob dead = penstock.queue("jobs").deadJobs(100, 0).get(0);
        assertEquals(List.of(1, 2), dead.failures().stream().map(DeadJob.Failure::attempt).toList());
        assertEquals(dead.error(), dead.failures().get(1).error());
        assertFalse(dead.failures().get(0).at().isBefore(dead.createdAt()));
        assertTrue(dead.error().matches("java.lang.IllegalStateException: mailbox full \\(ProduceTest.java:\\d+ in aRetryComesAfterItsPauseAndADeadLetterStays\\)"), dead::error);
        assertEquals("job " + dead.id() + ", attempt 2, dead since " + dead.diedAt() + ": " + dead.error(), dead.toString());
    }

    @Test
    void aDeadLetterKeepsTheCallersAndTheCausesBehindItsFirstLine() {
        penstock.enqueue("jobs", NewJob.of("bob").maxAttempts(1));
        Testing.runOne(penstock, "jobs", com.acme.Shop::send);
        assertEquals("""
            java.lang.IllegalStateException: no address (Shop.java:N in address)
            of this user
              from Shop.java:N in send
              from Shop.java:N in send
            caused by java.lang.NullPointerException: no key (Shop.java:N in address)""", penstock.queue("jobs").deadJobs(1, 0).get(0).error().replaceAll("java:\\d+", "java:N"));
    }

    @Test
    void aTestRunsTheNextJobOfAKind() {
        List.of("welcome", "invoice", "welcome", "").forEach(kind -> penstock.enqueue("jobs", NewJob.of(kind).kind(kind).groupKey(kind.equals("invoice") ? "g" : "")));
        for (String kind : List.of("invoice", "", "welcome", "welcome")) {
            Testing.Ran ran = Testing.runOne(penstock, "jobs", kind, j -> null);
            assertEquals(kind + 1, ran.job().kind() + ran.job().attempt());
        }
        penstock.enqueue("jobs", NewJob.of("x").kind("welcome"));
        AssertionError none = assertThrows(AssertionError.class, () -> Testing.runOne(penstock, "jobs", "invoice", j -> null));
        assertTrue(none.getMessage().contains("no job of kind \"invoice\" to run"), none::getMessage);
    }

    @Test
    void aTestFindsWhatIsEnqueuedAndClearsTheQueue() {
        penstock.enqueueMany("jobs", List.of(NewJob.of("1").kind("welcome").key("ann").priority(3), NewJob.of("2").kind("welcome").key("bob"), NewJob.of("3")));
        Instant later = Instant.now().plusSeconds(3600).truncatedTo(java.time.temporal.ChronoUnit.MICROS);
        penstock.enqueue("jobs", NewJob.of("4").kind("remind").groupKey("g").notBefore(later).headers(Map.of("h", "v")).dedupKey("d"));
        NewJob ann = Testing.requireEnqueued(penstock, "jobs", "welcome", "ann");
        assertEquals("1 3 null", new String(ann.payload()) + " " + ann.priority() + " " + ann.notBefore());
        assertEquals("2", new String(Testing.requireEnqueued(penstock, "jobs", "welcome", null).payload()));
        assertEquals("3", new String(Testing.requireEnqueued(penstock, "jobs", "", null).payload()));
        NewJob remind = Testing.requireEnqueued(penstock, "jobs", null, null);
        assertEquals(List.of("remind", "g", later, Map.of("h", "v")), List.of(remind.kind(), remind.groupKey(), remind.notBefore(), remind.headers()));
        assertEquals(NewJob.of("1").kind("welcome").key("ann").priority(3), ann);
        assertEquals("NewJob[payload=1, kind=welcome, key=ann, groupKey=, priority=3, notBefore=null, dedupKey=null, headers=null]", ann.toString());
        assertNotEquals(NewJob.of("2").kind("welcome").key("ann").priority(3), ann);
        assertEquals("Message[payload=2 bytes, id=null, key=null, topic=t, headers=null]", Message.of(new byte[] {0, -1}).topic("t").toString());
        assertEquals(Message.of("a").topic("t"), Message.of("a").topic("t"));
        String none = assertThrows(AssertionError.class, () -> Testing.requireEnqueued(penstock, "jobs", "remind", "ann")).getMessage();
        assertTrue(none.startsWith("nothing with kind remind, key ann was enqueued in jobs. There is: [kind remind, key null, "), none);
        Testing.runOne(penstock, "jobs", j -> Outcome.deadLetter("no"));
        Testing.runOne(penstock, "jobs", j -> Outcome.snooze(Duration.ofHours(1)));
        penstock.queue("jobs").claim(1, Duration.ofMinutes(1), "", "test", null);
        Testing.clear(penstock, "jobs");
        assertThrows(AssertionError.class, () -> Testing.requireEnqueued(penstock, "jobs", null, null));
        assertEquals(List.of(), penstock.queue("jobs").deadJobs(10, 0));
        assertEquals(List.of(), Testing.runAll(penstock, "jobs", j -> null));
        assertEquals(false, penstock.enqueue("jobs", NewJob.of("4").dedupKey("d")).deduplicated());
    }

    @Test
    void aTestRunsAllJobsWithTheirRetries() {
        penstock.enqueueMany("jobs", List.of(NewJob.of("fails").kind("a"), NewJob.of("later").kind("a").groupKey("g").notBefore(Instant.now().plusSeconds(86400))));
        Handler handler = Handler.byKind(Map.of("a", job -> {
            if (job.text().equals("fails") && job.attempt() < 3) {
                throw new IllegalStateException("busy");
            }
            return null;
        }));
        assertEquals(List.of("fails 1", "fails 2", "fails 3", "later 1"), Testing.runAll(penstock, "jobs", handler).stream().map(r -> r.job().text() + " " + r.job().attempt()).toList());
        penstock.enqueue("jobs", NewJob.of("x").kind("b"));
        assertEquals("no handler for kind \"b\" in jobs: there is one for [a]", assertThrows(AssertionError.class, () -> Testing.runAll(penstock, "jobs", handler)).getMessage());
        Testing.clear(penstock, "jobs");
        penstock.enqueue("jobs", NewJob.of("x"));
        assertTrue(assertThrows(AssertionError.class, () -> Testing.runAll(penstock, "jobs", j -> Outcome.snooze(Duration.ofMinutes(1)))).getMessage().startsWith("after 1000 attempts"));
    }

    /** They open at a commit, which such a test has not. */
    @Test
    void barriersOpenInTheTransactionOfATest() {
        for (boolean all : new boolean[] {false, true}) {
            long barrier = penstock.barrier("jobs");
            penstock.enqueueMany("jobs", List.of(NewJob.of("part 1").holds(barrier), NewJob.of("part 2").holds(barrier), NewJob.of("whole").waitsFor(barrier)));
            penstock.seal("jobs", barrier);
            List<String> order = List.of("part 1", "part 2", "whole");
            assertEquals(order, all ? Testing.runAll(penstock, "jobs", j -> null).stream().map(ran -> ran.job().text()).toList()
                : order.stream().map(expected -> Testing.runOne(penstock, "jobs", j -> null).job().text()).toList());
        }
    }

    @Test
    void anErrorOfTheDatabaseIsItsMessageAndItsHint() {
        PenstockException e = assertThrows(PenstockException.class, () -> penstock.queue("jobs").schedule("nightly", "0 25 * * *", NewJob.of("x")));
        assertTrue(e.getMessage().contains("'25' is not a valid hour") && e.getMessage().contains("Hint: give minute") && !e.getMessage().contains("Where:"), e::getMessage);
        Penstock lost = Penstock.on((text, values) -> {
            throw new java.sql.SQLException("ERROR: could not open relation with OID 4711", "XX000");
        });
        assertThrows(NotFoundException.class, () -> lost.enqueue("jobs", NewJob.of("x")));
    }

    @Test
    void oneOfAGroupOrWithLimitsRunsAsWell() {
        penstock.queue("jobs").setGroup("*", new GroupLimits().maxRunning(1));
        penstock.enqueueMany("jobs", List.of(NewJob.of("b").groupKey("shop-2"), NewJob.of("a1").groupKey("shop-1"), NewJob.of("a2").groupKey("shop-1"), NewJob.of("none"),
            NewJob.of("later").groupKey("shop-1").notBefore(Instant.now().plusSeconds(3600))));
        List<String> order = List.of("none", "a1", "a2", "b");
        assertEquals(order, order.stream().map(expected -> Testing.runOne(penstock, "jobs", j -> null).job().text()).toList());
        String none = assertThrows(AssertionError.class, () -> Testing.runOne(penstock, "jobs", j -> null)).getMessage();
        assertTrue(none.contains("in any group") && none.contains("Testing.advance"), none);
    }

    @Test
    void aStepRunsOnce() {
        penstock.enqueue("jobs", NewJob.of("x"));
        int[] charged = {0};
        Testing.Ran ran = Testing.runOne(penstock, "jobs", job -> {
            assertEquals("receipt 1", job.step("charge", () -> "receipt " + ++charged[0]));
            assertEquals("receipt 1", job.step("charge", () -> "receipt " + ++charged[0]));
            assertEquals("step", assertThrows(FieldException.class, () -> job.step("", () -> "x")).field());
            job.report("{}");
            return null;
        });
        assertEquals(Outcome.done(), ran.outcome());
    }

    @Test
    void aBufferKeepsWhatItWasGiven() throws Exception {
        byte[] payload = {'a'};
        Buffer buffer = penstock.buffer(3);
        buffer.publish("orders", Message.of(payload).topic("kept"));
        buffer.enqueue("jobs", NewJob.of(payload));
        payload[0] = 'b';
        buffer.flush();
        assertEquals("a", new String(Testing.requirePublished(penstock, "orders", "kept", null).payload()));
        assertEquals("a", penstock.queue("jobs").claim(1, Duration.ofMinutes(1), "", "test", null).jobs().get(0).text());
    }

    @Test
    void aBufferWritesInOrderAtSoManyAndAtTheEnd() throws Exception {
        Buffer buffer = penstock.buffer(3);
        for (int i = 0; i < 5; i++) {
            buffer.publish("orders", Message.of("" + i).topic("buffered"));
        }
        assertEquals("2", new String(Testing.requirePublished(penstock, "orders", "buffered", null).payload()));
        buffer.enqueue("jobs", NewJob.of("job"));
        buffer.flush();
        assertEquals("4", new String(Testing.requirePublished(penstock, "orders", "buffered", null).payload()));
        assertEquals("job", Testing.runOne(penstock, "jobs", j -> null).job().text());
        penstock.buffered(b -> b.publish("orders", Message.of("5").topic("buffered")));
        assertEquals("5", new String(Testing.requirePublished(penstock, "orders", "buffered", null).payload()));
    }

    @Test
    void whatCannotBeCarriedIsRefusedAndTheTransactionGoesOn() {
        for (NewJob job : List.of(NewJob.of("").kind("k".repeat(101)), NewJob.of("").kind("a\n"), NewJob.of("").headers(Map.of(Penstock.HEADER_KIND, "\u007f")),
            NewJob.of("").kind("a").headers(Map.of(Penstock.HEADER_KIND, "b")))) {
            assertEquals("kind", assertThrows(FieldException.class, () -> penstock.enqueue("jobs", job)).field());
        }
        assertEquals("kind", assertThrows(FieldException.class, () -> Handler.byKind(Map.of("\n", job -> null))).field());
        for (var wrong : Map.<String, Runnable>of(
            "key", () -> penstock.publish("orders", Message.of("").key("k".repeat(1025))),
            "topic", () -> penstock.publishMany("orders", List.of(Message.of(""), Message.of("").topic("\0"))),
            "id", () -> penstock.publish("orders", Message.of("").id("\n")),
            "payload", () -> Message.of("\uD800"),
            "headers", () -> penstock.buffer(9).publish("orders", Message.of("").headers(Map.of("", "x"))),
            "priority", () -> penstock.enqueue("jobs", NewJob.of("").priority(16)),
            "dedupKey", () -> penstock.enqueue("jobs", NewJob.of("").dedupKey("\uDC00")),
            "notBefore", () -> penstock.enqueue("jobs", NewJob.of("").notBefore(Instant.MAX))).entrySet()) {
            assertEquals(wrong.getKey(), assertThrows(FieldException.class, wrong.getValue()::run).field());
        }
        penstock.publish("orders", Message.of(""));
    }

    @Test
    void errorsSayWhatToDo() {
        var missing = assertThrows(NotFoundException.class, () -> penstock.publish("missing", Message.of("")));
        assertEquals("42P01", missing.sqlState());
        assertTrue(missing.getMessage().contains("penstock outbox create 'missing'"), missing.getMessage());
        assertFalse(missing.getMessage().contains("queue create"), missing.getMessage());
        var schema = assertThrows(SchemaException.class, () -> Penstock.on(database.dataSource).schema("elsewhere").check());
        assertTrue(schema.getMessage().contains("penstock migrate --schema 'elsewhere')"), schema.getMessage());
    }

    @Test
    void aDataSourceThatDoesNotCommitIsRefused() {
        DataSource off = (DataSource) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {DataSource.class}, (proxy, method, args) -> {
            Connection connection = database.dataSource.getConnection();
            connection.setAutoCommit(false);
            return connection;
        });
        var e = assertThrows(IllegalStateException.class, () -> Penstock.on(off).publish("orders", Message.of("")));
        assertTrue(e.getMessage().contains("Connection of your transaction"), e.getMessage());
    }

    @Test
    void aConnectionInAutoCommitModeIsRefusedButToRead() throws Exception {
        try (Connection alone = database.dataSource.getConnection()) {
            Penstock on = Penstock.on(alone);
            for (Executable call : List.<Executable>of(() -> on.enqueue("jobs", NewJob.of("")), () -> on.publish("orders", Message.of("")), () -> on.inbox("billing").first("1"))) {
                String refused = assertThrows(IllegalStateException.class, call).getMessage();
                assertTrue(refused.contains("call connection.setAutoCommit(false) before, and connection.commit() after"), refused);
            }
            assertEquals(0, on.queue("jobs").status().ready());
        }
    }

    @Test
    void aNullAmongJobsAndMessagesIsNamed() {
        assertEquals("jobs[1] is null", assertThrows(FieldException.class, () -> penstock.enqueueMany("jobs", Arrays.asList(NewJob.of("a"), null))).getMessage());
        assertEquals("messages[0] is null", assertThrows(FieldException.class, () -> penstock.publishMany("orders", Arrays.asList((Message) null))).getMessage());
        assertEquals("job is null", assertThrows(FieldException.class, () -> penstock.enqueue("jobs", null)).getMessage());
    }

    @Test
    void aJobTellsItsLimits() {
        Instant deadline = Instant.parse("2100-01-01T00:00:00.000001Z");
        penstock.enqueueMany("jobs", List.of(NewJob.of("a").maxAttempts(3).deadline(deadline), NewJob.of("b")));
        Job limited = Testing.runOne(penstock, "jobs", j -> null).job();
        assertEquals(List.of(3, deadline), List.of(limited.maxAttempts(), limited.deadline()));
        Job other = Testing.runOne(penstock, "jobs", j -> null).job();
        assertEquals(0, other.maxAttempts());
        assertNull(other.deadline());
    }

    @Test
    void inJooqsTransaction() throws Exception {
        var dsl = DSL.using(database.dataSource, SQLDialect.POSTGRES);
        assertThrows(IllegalStateException.class, () -> dsl.transaction(of -> {
            of.dsl().connection(c -> Penstock.on(c).publish("orders", Message.of("").topic("jooq")));
            throw new IllegalStateException("rolled back");
        }));
        dsl.transaction(of -> of.dsl().connection(c -> Penstock.on(c).publish("orders", Message.of("").topic("jooq"))));
        assertEquals(1L, database.value("delete from penstock.orders where topic = 'jooq' returning (select count(*) from penstock.orders where topic = 'jooq')"));
    }

    @Test
    void anInboxKnowsWhatItHad() {
        assertTrue(penstock.inbox("billing").first("m"));
        assertFalse(penstock.inbox("billing").first("m"));
    }

    @Test
    void timePassesAtOnce() throws Exception {
        try (Database own = new Database()) {
            Penstock here = Penstock.on(own.dataSource);
            here.enqueue("jobs", NewJob.of("later").notBefore(Instant.now().plusSeconds(3600)));
            assertTrue(here.queue("jobs").claim(1, Duration.ofMinutes(1), "", "", List.of()).jobs().isEmpty());
            Testing.advance(here, "jobs", Duration.ofHours(2));
            assertEquals("later", here.queue("jobs").claim(1, Duration.ofMinutes(1), "", "", List.of()).jobs().get(0).text());
        }
    }
}
