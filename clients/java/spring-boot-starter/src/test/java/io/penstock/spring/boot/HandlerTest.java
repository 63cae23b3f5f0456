package io.penstock.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.penstock.Job;
import io.penstock.NewJob;
import io.penstock.Outcome;
import io.penstock.Penstock;
import io.penstock.Testing;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.slf4j.MDC;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Import;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;
import org.springframework.transaction.support.TransactionTemplate;

/** Methods with @PenstockHandler. */
@Timeout(value = 3, unit = TimeUnit.MINUTES) // ends what has failed
class HandlerTest {
    private static final LinkedBlockingQueue<String> DONE = new LinkedBlockingQueue<>();
    private static Database database;

    record Part(int n) {}

    record Rest(int seconds) {}

    record Welcome(String name, int visits) {}

    static class Handlers {
        private final JdbcTemplate template;

        private final Penstock penstock;
        private final TransactionTemplate transaction;

        Handlers(JdbcTemplate template, Penstock penstock, PlatformTransactionManager transactions) {
            this.template = template;
            this.penstock = penstock;
            this.transaction = new TransactionTemplate(transactions);
        }

        @PenstockHandler(queue = "jobs", kind = "enqueues")
        void enqueues(Job job) throws Exception {
            job.step("before", () -> "x");
            template.update("insert into audit values (5)");
            transaction.executeWithoutResult(its -> {
                penstock.enqueue("jobs", NewJob.of("within"));
                TransactionSynchronizationManager.registerSynchronization(new TransactionSynchronization() {
                    @Override
                    public void afterCommit() {
                        DONE.add("committed");
                    }
                });
            });
            penstock.enqueue("jobs", NewJob.of("without"));
        }

        @PenstockHandler(queue = "jobs", kind = "enqueues exactly", transactional = true)
        void enqueuesExactly() {
            penstock.enqueue("jobs", NewJob.of("next"));
        }

        @PenstockHandler(queue = "${jobs}", kind = "welcome")
        void welcome(Welcome welcome) {
            DONE.add(welcome.toString());
        }

        @PenstockHandler(queue = "jobs", kind = "many")
        Outcome many(Job job, List<Welcome> welcomes) {
            DONE.add(job.kind() + welcomes.get(0).visits());
            return Outcome.done();
        }

        @PenstockHandler(queue = "jobs", kind = "part")
        void part(Part part) {
            DONE.add(part.toString());
        }

        @PenstockHandler(queue = "jobs")
        public void plain(String text) {
            DONE.add(text);
        }

        @Transactional // so it is a proxy
        @PenstockHandler(queue = "jobs", kind = "fails")
        public void fails() {
            DONE.add("fails");
            throw new IllegalStateException("mailbox full");
        }

        @PenstockHandler(queue = "jobs", kind = "slow", maxAttempts = 1, timeout = "20ms")
        void slow() throws InterruptedException {
            DONE.add("slow");
            new java.util.concurrent.CountDownLatch(1).await();
        }

        @PenstockHandler(queue = "jobs", kind = "logs")
        void logs(Job job) {
            DONE.add("logs " + MDC.getCopyOfContextMap().equals(Map.of("penstock.queue", "jobs", "penstock.kind", "logs", "penstock.job", "" + job.id())));
        }

        @PenstockHandler(queue = "jobs", kind = "exact", transactional = true)
        public Outcome exact(byte[] bytes) {
            template.update("insert into audit values (?)", bytes.length);
            DONE.add("exact " + bytes.length);
            return bytes.length == 3 ? null : Outcome.deadLetter("not 3");
        }
    }

    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class Application {}

    @BeforeAll
    static void make() throws Exception {
        database = new Database().migrated();
        database.jdbc.execute("select penstock.create_queue('jobs'); create table audit (id int)");
    }

    @AfterAll
    static void drop() {
        database.close();
    }

    @Test
    void eachMethodTakesItsKind() throws Exception {
        Penstock penstock = Penstock.on(database.source);
        Map<String, Object> properties = Map.of("jobs", "jobs", "penstock.work.concurrency", 1, "penstock.work.queues.jobs.group-key", "eu");
        try (ConfigurableApplicationContext application = database.application(properties, Application.class, Handlers.class).run()) {
            PenstockJson json = application.getBean(PenstockJson.class);
            Welcome ann = new Welcome("ann", 2);
            penstock.enqueueMany("jobs", List.of(json.job(ann).kind("welcome"), json.job(List.of(ann)).kind("many"), NewJob.of("text"), NewJob.of("").kind("fails"),
                NewJob.of("abc").kind("exact"), NewJob.of("abcd").kind("exact"), NewJob.of("{").kind("welcome"), NewJob.of("").kind("slow"), NewJob.of("").kind("logs"), NewJob.of("last")).stream().map(j -> j.groupKey("eu")).toList());
            for (String expected : List.of(ann.toString(), "many2", "text", "fails", "exact 3", "exact 4", "slow", "logs true", "last")) { // one at a time, in order
                assertEquals(expected, DONE.take());
            }
        }
        assertEquals(List.of(3), database.jdbc.queryForList("select id from audit", Integer.class));
        List<String> reasons = database.jdbc.queryForList("select failures::text from penstock._dead_job order by id", String.class);
        assertEquals(3, reasons.size(), reasons.toString());
        assertTrue(reasons.get(2).contains("ran longer than its timeout of 0.02 s"), reasons.toString());
        assertTrue(reasons.get(0).contains("not 3") && reasons.get(1).contains("reading the payload: Unexpected end-of-input"), reasons.toString());
        assertEquals(1, database.jdbc.queryForObject("select count(*) from penstock._scheduled where failures::text like '%\"java.lang.IllegalStateException: mailbox full (HandlerTest.java:%'", Integer.class));
    }

    @Test
    void aTestRunsHandlersInItsTransaction() {
        Map<String, Object> properties = Map.of("jobs", "jobs", "penstock.work.enabled", false);
        try (ConfigurableApplicationContext application = database.application(properties, Application.class, Handlers.class).run()) {
            Penstock penstock = application.getBean(Penstock.class);
            PenstockHandlers handlers = application.getBean(PenstockHandlers.class);
            new TransactionTemplate(application.getBean(PlatformTransactionManager.class)).executeWithoutResult(test -> {
                penstock.enqueue("jobs", NewJob.of("text"));
                assertEquals(Outcome.done(), Testing.runOne(penstock, "jobs", handlers.of("jobs")).outcome());
                assertEquals("text", DONE.poll());
                penstock.enqueue("jobs", NewJob.of("abcd").kind("exact"));
                assertEquals(Outcome.deadLetter("not 3"), Testing.runOne(penstock, "jobs", handlers.of("jobs")).outcome());
                assertEquals("exact 4", DONE.poll());
                assertEquals(List.of(4), application.getBean(JdbcTemplate.class).queryForList("select id from audit where id = 4", Integer.class));
                test.setRollbackOnly();
            });
            assertEquals(List.of(), database.jdbc.queryForList("select id from audit where id = 4", Integer.class));
            assertTrue(assertThrows(IllegalStateException.class, () -> handlers.of("others")).getMessage().endsWith("handlers of: [jobs]"));
        }
    }

    private static String readOrError(PenstockJson json, byte[] payload) {
        try {
            return json.read(payload, Rest.class).toString();
        } catch (IllegalArgumentException e) {
            return "IllegalArgumentException";
        }
    }

    /** A kind with the payload of another would run with values that are not there. */
    @Test
    void aPayloadThatDoesNotFitIsADeadLetter() {
        for (boolean strict : new boolean[] {true, false}) {
            Map<String, Object> properties = strict ? Map.of("jobs", "jobs", "penstock.work.enabled", false)
                : Map.of("jobs", "jobs", "penstock.work.enabled", false, "penstock.work.strict-payloads", false);
            try (ConfigurableApplicationContext application = database.application(properties, Application.class, Handlers.class).run()) {
                Penstock penstock = application.getBean(Penstock.class);
                PenstockJson json = application.getBean(PenstockJson.class);
                PenstockHandlers handlers = application.getBean(PenstockHandlers.class);
                assertEquals(new Rest(3), json.read(json.job(new Rest(3)).payload(), Rest.class));
                byte[] other = json.job(Map.of("seconds", 3, "n", 1)).payload();
                assertEquals(strict ? "IllegalArgumentException" : "Rest[seconds=3]", readOrError(json, other));
                new TransactionTemplate(application.getBean(PlatformTransactionManager.class)).executeWithoutResult(test -> {
                    test.setRollbackOnly();
                    for (NewJob job : strict ? List.of(json.job(new Rest(3)), NewJob.of("{}"), NewJob.of("{\"n\":1,\"seconds\":3}")) : List.of(NewJob.of("{\"n\":1,\"seconds\":3}"))) {
                        penstock.enqueue("jobs", job.kind("part"));
                        String ended = Testing.runOne(penstock, "jobs", handlers.of("jobs")).outcome().toString();
                        assertTrue(strict ? ended.startsWith("dead letter: reading the payload: ") && ended.contains("Part") : ended.equals("done"), ended);
                        assertEquals(strict ? null : "Part[n=1]", DONE.poll());
                    }
                });
            }
        }
    }

    /** What publishes without a transaction fails in a test as it does in a worker. */
    @Test
    void aTestNoticesThatAHandlerLacksItsTransaction() {
        Map<String, Object> properties = Map.of("jobs", "jobs", "penstock.work.enabled", false);
        try (ConfigurableApplicationContext application = database.application(properties, Application.class, Handlers.class).run()) {
            Penstock penstock = application.getBean(Penstock.class);
            PenstockHandlers handlers = application.getBean(PenstockHandlers.class);
            JdbcTemplate template = application.getBean(JdbcTemplate.class);
            new TransactionTemplate(application.getBean(PlatformTransactionManager.class)).executeWithoutResult(test -> {
                penstock.enqueue("jobs", NewJob.of("").kind("enqueues"));
                Throwable e = Testing.runOne(penstock, "jobs", handlers.of("jobs")).outcome();
                assertTrue(String.valueOf(e.getMessage()).contains("the caller needs @Transactional, @PenstockHandler transactional = true"), String.valueOf(e));
                assertEquals("committed", DONE.poll());
                assertEquals(List.of(5), template.queryForList("select id from audit where id = 5", Integer.class), "other writes are in the test's transaction");
                assertEquals("within", Testing.runOne(penstock, "jobs", handlers.of("jobs")).job().text());
                assertEquals("within", DONE.poll());
                penstock.enqueue("jobs", NewJob.of("").kind("enqueues exactly"));
                assertEquals(Outcome.done(), Testing.runOne(penstock, "jobs", handlers.of("jobs")).outcome());
                assertEquals("next", Testing.runOne(penstock, "jobs", handlers.of("jobs")).job().text());
                assertEquals("next", DONE.poll());
                test.setRollbackOnly();
            });
            assertEquals(List.of(), template.queryForList("select id from audit where id = 5", Integer.class));
        }
    }

    @Test
    void workCanBeDoneElsewhere() {
        Map<String, Object> properties = Map.of("jobs", "nowhere", "penstock.work.enabled", false, "penstock.fail-fast", true);
        database.application(properties, Application.class, Handlers.class).run().close();
        var e = assertThrows(Exception.class, () -> database.application(Map.of("jobs", "nowhere", "penstock.fail-fast", true), Application.class, Handlers.class).run());
        assertTrue(e.getCause().getMessage().contains("penstock queue create 'nowhere'"), e.toString());
    }

    static class Twice {
        @PenstockHandler(queue = "jobs")
        void one(String text) {}

        @PenstockHandler(queue = "jobs")
        void two(String text) {}
    }

    static class TakesTwo {
        @PenstockHandler(queue = "jobs")
        void take(String text, byte[] bytes) {}
    }

    static class Returns {
        @PenstockHandler(queue = "jobs")
        String take(String text) {
            return text;
        }
    }

    static class Hidden {
        @Transactional // so it is a proxy
        public void other() {}

        @PenstockHandler(queue = "jobs")
        private void take(String text) {}
    }

    static class Final {
        @Transactional // so it is a proxy
        public void other() {}

        @PenstockHandler(queue = "jobs")
        final void take(String text) {}
    }

    static class TimeoutNegative {
        @PenstockHandler(queue = "jobs", timeout = "-5s")
        void take(String text) {}
    }

    static class AttemptsNegative {
        @PenstockHandler(queue = "jobs", maxAttempts = -1)
        void take(String text) {}
    }

    static class QueueUnknown {
        @PenstockHandler(queue = "${mails}")
        void take(String text) {}
    }

    static class Timeout30 {
        @PenstockHandler(queue = "jobs", timeout = "30 seconds")
        void take(String text) {}
    }

    static class TimeoutWithoutUnit {
        @PenstockHandler(queue = "jobs", timeout = "30")
        void take(String text) {}
    }

    static class BackoffSoon {
        @PenstockHandler(queue = "jobs", backoff = "${pause:soon}")
        void take(String text) {}
    }

    static class Both {
        @Bean
        PenstockWorker worker() {
            return new PenstockWorker("jobs", job -> null);
        }

        @PenstockHandler(queue = "jobs")
        void take(String text) {}
    }

    @Test
    void whatCannotWorkIsSaidAtTheStart() {
        Map<Class<?>, String> wrong = new HashMap<>(Map.of(Twice.class, "two methods handle kind \"\" of queue jobs", TakesTwo.class, "takes a payload, a Job, or both",
            Returns.class, "returns nothing or an Outcome", Both.class, "would take each other's jobs"));
        wrong.put(Hidden.class, "bean \"handlerTest.Hidden\" is a proxy, and cannot run its method private void io.penstock.spring.boot.HandlerTest$Hidden.take(java.lang.String)");
        wrong.put(Final.class, "bean \"handlerTest.Final\" is a proxy, and cannot run its method final void io.penstock.spring.boot.HandlerTest$Final.take(java.lang.String)");
        wrong.put(TimeoutNegative.class, "bean \"handlerTest.TimeoutNegative\": void io.penstock.spring.boot.HandlerTest$TimeoutNegative.take(java.lang.String) has @PenstockHandler: timeout is PT-5S");
        wrong.put(AttemptsNegative.class, "HandlerTest$AttemptsNegative.take(java.lang.String) has @PenstockHandler: maxAttempts is -1, expected 1 or more, or 0");
        wrong.put(QueueUnknown.class, "HandlerTest$QueueUnknown.take(java.lang.String) has @PenstockHandler: Could not resolve placeholder 'mails'");
        wrong.put(Timeout30.class, "HandlerTest$Timeout30.take(java.lang.String) has @PenstockHandler with timeout = \"30 seconds\"");
        wrong.put(TimeoutWithoutUnit.class, "has @PenstockHandler with timeout = \"30\", which has no unit: write \"30s\" for seconds");
        wrong.put(BackoffSoon.class, "HandlerTest$BackoffSoon.take(java.lang.String) has @PenstockHandler with backoff = \"soon\"");
        wrong.forEach((type, message) -> {
            var e = assertThrows(Exception.class, () -> database.application(Map.of(), Application.class, type).run());
            assertTrue(String.valueOf(e.getCause().getMessage()).contains(message), e.toString());
        });
    }

    @Test
    void aQueueHasOneChoiceOfGroups() {
        Map<String, Object> both = Map.of("jobs", "jobs", "penstock.work.queues.jobs.all-groups", true, "penstock.work.queues.jobs.group-key", "eu");
        Throwable e = assertThrows(Exception.class, () -> database.application(both, Application.class, Handlers.class).run());
        while (e.getCause() != null) {
            e = e.getCause();
        }
        assertEquals("group-key, groups and all-groups exclude each other: set one of them", e.getMessage());
    }
}
