package io.penstock.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.penstock.Message;
import io.penstock.NewJob;
import io.penstock.Penstock;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.diagnostics.FailureAnalysis;
import org.springframework.context.annotation.Bean;

/** An application with Flyway, on a database that has nothing: db/migration has a script that uses Penstock. */
@Timeout(value = 3, unit = TimeUnit.MINUTES) // ends what has failed
class MigrationTest {
    private static final LinkedBlockingQueue<String> DONE = new LinkedBlockingQueue<>();

    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class Application {
        @Bean
        PenstockWorker worker() {
            return new PenstockWorker("worked", job -> {
                DONE.add(job.text());
                return null;
            });
        }

        @PenstockHandler(queue = "handled", kind = "a")
        void handle(String text) {
            DONE.add(text);
        }
    }

    private static final Map<String, Object> SETTINGS = Map.of("penstock.queue-settings.handled.max-attempts", 5, "penstock.queue-settings.handled.max-running", 8,
        "penstock.queue-settings.handled.rate", 600, "penstock.queue-settings.handled.per", "1m", "penstock.queue-settings.handled.dedup-window", "2h",
        "penstock.queue-settings.handled.keep-done", "1d", "penstock.queue-settings.elsewhere.ordering", "lifo");

    @Test
    void theStartMakesTheSchemaAndWhatIsMissingInIt() throws Exception {
        try (Database database = new Database(); Lines lines = new Lines()) {
            Map<String, Object> properties = new HashMap<>(Map.of("penstock.schedules.nightly.queue", "nights", "penstock.schedules.nightly.cron", "TZ=Europe/Berlin 0 3 * * *",
                "penstock.schedules.nightly.kind", "digest", "penstock.schedules.nightly.skip-overlap", true));
            properties.putAll(Map.of("penstock.migrate", true, "penstock.outboxes", "orders,returns", "penstock.inboxes", "billing", "penstock.queues", "elsewhere,nights",
                "penstock.fail-fast", true, "spring.flyway.enabled", "true", "penstock.groups.handled.[*].max-running", 2, "penstock.groups.handled.shop-17.rate", 60,
                "penstock.groups.handled.shop-17.per", "1m"));
            properties.putAll(SETTINGS);
            for (int start = 0; start < 2; start++) { // the second has nothing to do
                try (var application = database.application(properties, Application.class).initializers(context -> lines.attach()).run()) {
                    Penstock penstock = Penstock.on(database.source);
                    penstock.enqueue("worked", NewJob.of("worked"));
                    assertEquals("worked", DONE.take());
                    penstock.enqueue("handled", NewJob.of("handled").kind("a"));
                    assertEquals("handled", DONE.take());
                    penstock.enqueue("elsewhere", NewJob.of(""));
                    for (String outbox : new String[] {"orders", "returns", "from_flyway"}) {
                        penstock.publish(outbox, Message.of(""));
                    }
                    assertEquals(start == 0, penstock.inbox("billing").first("m"));
                    assertEquals("[nightly, TZ=Europe/Berlin 0 3 * * *, digest, true]", penstock.queue("nights").schedules().stream()
                        .flatMap(s -> Stream.of(s.name(), s.cron(), s.kind(), s.skipOverlap())).toList().toString());
                    assertEquals("[[*, 2, null, null], [shop-17, null, 60, PT1M]]", penstock.queue("handled").groupPolicies(10, "").stream()
                        .map(p -> List.of(p.groupKey(), "" + p.maxRunning(), "" + p.rate(), "" + p.per())).toList().toString());
                }
            }
            assertEquals("5 8 600 00:01:00 02:00:00 24:00:00", database.jdbc.queryForObject(
                "select concat_ws(' ', max_attempts, max_running, rate, per, dedup_window, keep_done) from penstock._queue where name = 'handled'", String.class));
            assertEquals(List.of("elsewhere"), database.jdbc.queryForList("select name from penstock._queue where lifo", String.class));
            assertEquals(2, lines.count("penstock.groups.handled limits groups, and the worker of queue handled takes only jobs without a group: penstock.work.queues.handled.all-groups=true"));
            for (String made : new String[] {"outbox returns", "inbox billing", "queue elsewhere", "queue handled"}) {
                assertEquals(1, lines.count("penstock.migrate is true: " + made + " is new"), made);
            }
        }
    }

    @Test
    void aScheduleWithoutAHandlerIsTold() throws Exception {
        try (Database database = new Database(); Lines lines = new Lines()) {
            Map<String, Object> properties = new HashMap<>(Map.of("penstock.migrate", true, "penstock.schedules.nightly.queue", "handled", "penstock.schedules.nightly.cron", "0 3 * * *"));
            for (String kind : new String[] {"a", "hartbeat"}) {
                properties.put("penstock.schedules.nightly.kind", kind);
                database.application(properties, Application.class).initializers(context -> lines.attach()).run().close();
            }
            assertEquals(1, lines.count("penstock.schedules.nightly.kind is \"hartbeat\", for which queue handled has no method with @PenstockHandler. Those that are there are for: [a]"));
            assertEquals(0, lines.count("kind is \"a\""));
        }
    }

    private static void refused(Database database, Map<String, Object> properties, String message) {
        Throwable e = assertThrows(Exception.class, () -> database.application(properties, Application.class).run());
        while (!(e instanceof StartException)) {
            assertNotNull(e.getCause(), e.toString());
            e = e.getCause();
        }
        assertTrue(e.getMessage().contains(message), e.toString());
        FailureAnalysis shown = new StartAnalyzer().analyze(e);
        assertEquals(e.getMessage(), shown.getDescription());
    }

    @Test
    void aPropertyThatDoesNotExistIsNamed() throws Exception {
        try (Database database = new Database()) {
            for (String property : List.of("penstock.quues", "penstock.work.concurency", "penstock.queue-settings.handled.max-atempts")) {
                Throwable e = assertThrows(Exception.class, () -> database.application(Map.of("penstock.migrate", true, property, "2"), Application.class).run());
                while (e.getCause() != null) {
                    e = e.getCause();
                }
                assertTrue(e.getMessage().contains(property) && e.getMessage().contains("unbound"), e.toString());
            }
        }
    }

    @Test
    void aPropertyThatIsWrongIsNamed() throws Exception {
        try (Database database = new Database()) {
            Map<String, Object> properties = new HashMap<>(Map.of("penstock.migrate", true, "penstock.schedules.nightly.queue", "handeld", "penstock.schedules.nightly.cron", "0 3 * * *"));
            refused(database, properties, "penstock.schedules.nightly.queue names the queue \"handeld\", which does not exist. Handlers here are for: [worked, handled]");
            properties.put("penstock.schedules.nightly.queue", "handled");
            properties.put("penstock.schedules.nightly.cron", "0 25 * * *");
            refused(database, properties, "penstock.schedules.nightly: ERROR: ");
            refused(database, Map.of("penstock.migrate", true, "penstock.queue-settings.handeld.max-attempts", 2), "penstock.queue-settings.handeld names the queue \"handeld\"");
            refused(database, Map.of("penstock.migrate", true, "penstock.queue-settings.handled.max-attempts", 0), "penstock.queue-settings.handled: ERROR: max_attempts is 0, expected at least 1");
            refused(database, Map.of("penstock.migrate", true, "penstock.queue-settings.handled.ordering", "lifo"),
                "penstock.queue-settings.handled.ordering is lifo, and the queue is fifo, which does not change");
            refused(database, Map.of("penstock.migrate", true, "penstock.work.concurrency", 0), "penstock.work.concurrency is 0, expected 1 to ");
            refused(database, Map.of("penstock.migrate", true, "penstock.work.queues.handled.drain-timeout", "-1s"), "penstock.work.queues.handled.drain-timeout is ");
            refused(database, Map.of("penstock.migrate", true, "penstock.groups.handeld.eu.max-running", 2), "penstock.groups.handeld names the queue \"handeld\"");
            assertEquals(List.of("handled", "worked"), database.jdbc.queryForList("select name from penstock._queue order by name", String.class));
        }
    }

    @Test
    void aRateOfAGroupWithoutItsTimeIsRefused() throws Exception {
        try (Database database = new Database()) {
            for (String limit : List.of("rate", "burst")) {
                Throwable e = assertThrows(Exception.class, () -> database.application(Map.of("penstock.migrate", true, "penstock.groups.handled.eu." + limit, 60), Application.class).run());
                while (e.getCause() != null) {
                    e = e.getCause();
                }
                assertEquals("rate, per and burst of a group belong together: set rate and per, as 60 and 1m", e.getMessage());
            }
        }
    }

    @Test
    void aRateOfAQueueWithoutItsTimeIsRefused() throws Exception {
        try (Database database = new Database()) {
            for (String limit : List.of("rate", "burst", "per")) {
                Throwable e = assertThrows(Exception.class, () -> database.application(Map.of("penstock.migrate", true, "penstock.queue-settings.handled." + limit, 60), Application.class).run());
                while (e.getCause() != null) {
                    e = e.getCause();
                }
                assertEquals("rate, per and burst of a queue belong together: set rate and per, as 60 and 1m, or rate: 0 alone to lift the limit", e.getMessage());
            }
        }
    }

    @Test
    void aRoleThatMayNotMigrateIsToldSo() throws Exception {
        try (Database database = new Database()) {
            String role = "java_app_" + ProcessHandle.current().pid();
            database.jdbc.execute("create role " + role + " login password 'x'");
            try {
                Map<String, Object> properties = Map.of("penstock.migrate", true, "spring.datasource.username", role, "spring.datasource.password", "x");
                refused(database, properties, "penstock.migrate is true: ERROR: permission denied for database");
                refused(database, properties, "(only the role that owns the schema, or may create it, can migrate; it can run: penstock migrate)");
                database.migrated();
                refused(database, properties, "can migrate; it can run: penstock migrate)");
            } finally {
                database.jdbc.execute("drop owned by " + role + "; drop role " + role);
            }
        }
    }

    @Test
    void aQueueWithTheNameOfAnOutboxIsRefused() throws Exception {
        try (Database database = new Database()) {
            refused(database, Map.of("penstock.migrate", true, "penstock.outboxes", "orders", "penstock.queues", "orders"),
                "penstock.migrate is true: ERROR: an outbox has the name 'orders'\n  Hint: outboxes and queues share their names: choose another");
        }
    }
}
