package io.penstock.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.actuate.health.Health;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.actuate.health.Status;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.autoconfigure.data.jpa.JpaRepositoriesAutoConfiguration;
import org.springframework.boot.autoconfigure.orm.jpa.HibernateJpaAutoConfiguration;

/** A pool that is too small for the workers, and a worker that does not begin. */
@Timeout(value = 3, unit = TimeUnit.MINUTES) // ends what has failed
class PoolTest {
    @SpringBootConfiguration
    @EnableAutoConfiguration(exclude = {HibernateJpaAutoConfiguration.class, JpaRepositoriesAutoConfiguration.class},
        excludeName = "org.springframework.modulith.events.jdbc.JdbcEventPublicationAutoConfiguration")
    static class Application {
        @PenstockHandler(queue = "emails")
        void emails(String text) {}

        @PenstockHandler(queue = "orders")
        void orders(String text) {}
    }

    @SpringBootConfiguration
    @EnableAutoConfiguration(exclude = {HibernateJpaAutoConfiguration.class, JpaRepositoriesAutoConfiguration.class},
        excludeName = "org.springframework.modulith.events.jdbc.JdbcEventPublicationAutoConfiguration")
    static class Transactional {
        @PenstockHandler(queue = "emails", transactional = true)
        void emails(String text) {}
    }

    @Test
    void aWorkerThatDoesNotBeginSaysSo() throws Exception {
        try (Database database = new Database().migrated(); Lines lines = new Lines()) {
            database.jdbc.execute("select penstock.create_queue('emails'); select penstock.create_queue('orders'); alter function penstock.maintain_queue(text) rename to away");
            database.jdbc.execute("create function penstock.maintain_queue(text) returns void language sql as 'select pg_sleep(3600)'");
            Map<String, Object> properties = Map.of("spring.datasource.hikari.connection-timeout", 250, "spring.datasource.hikari.maximum-pool-size", 6,
                "penstock.work.queues.mails.concurrency", 1);
            try (var application = database.application(properties, Application.class).initializers(context -> lines.attach()).run()) {
                lines.await("penstock.work.queues.mails has no effect: no method with @PenstockHandler is for that queue. Those that are there are for: [");
                lines.await("2 workers take up to 6 connections, and the pool has 6: set spring.datasource.hikari.maximum-pool-size to 7 or more");
                lines.await("has not begun after 1 s");
                lines.await("has not begun after 1 s");
                HealthIndicator indicator = application.getBean("penstockHealthIndicator", HealthIndicator.class);
                Health health = indicator.health();
                assertEquals(Status.DOWN, health.getStatus());
                assertTrue(health.getDetails().get("orders").toString().contains("has not begun"), health.toString());
                database.jdbc.execute("drop function penstock.maintain_queue(text); alter function penstock.away(text) rename to maintain_queue");
                database.jdbc.queryForList("select pg_cancel_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state = 'active'");
                while (!indicator.health().getStatus().equals(Status.UP)) {
                    Thread.sleep(20);
                }
            }
            lines.await("has stopped");
            lines.await("has stopped");
        }
    }

    @Test
    void aPoolThatIsLargeEnoughIsFine() {
        try (Lines lines = new Lines()) {
            lines.attach();
            new Pool(7, Duration.ofSeconds(1)).warn(2);
            new Pool(null, Duration.ofSeconds(1)).warn(2);
            new Pool(1, Duration.ofSeconds(1)).warn(0);
            assertEquals(0, lines.lines.size());
        }
    }

    /** The worker has all connections of the pool. No attempt is spent of a job whose handler cannot be called. */
    @Test
    void aTransactionThatCannotBeginSpendsNoAttempt() throws Exception {
        try (Database database = new Database().migrated(); Lines lines = new Lines()) {
            database.jdbc.execute("select penstock.create_queue('emails'); select penstock.enqueue('emails', 'a', max_attempts => 1)");
            Map<String, Object> properties = Map.of("spring.datasource.hikari.connection-timeout", 250, "spring.datasource.hikari.maximum-pool-size", 2);
            try (var application = database.application(properties, Transactional.class).initializers(context -> lines.attach()).run()) {
                lines.await("cannot begin; it runs again in a second");
            }
            assertEquals(List.of(), database.jdbc.queryForList("select * from penstock.dead_jobs('emails')"));
            assertEquals(1, database.jdbc.queryForObject("select ready + delayed from penstock.queue_status('emails')", Integer.class));
        }
    }
}
