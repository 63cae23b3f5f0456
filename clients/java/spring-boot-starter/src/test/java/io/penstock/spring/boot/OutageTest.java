package io.penstock.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.penstock.NewJob;
import io.penstock.Penstock;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.sql.DataSource;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.actuate.health.Status;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.autoconfigure.data.jpa.JpaRepositoriesAutoConfiguration;
import org.springframework.boot.autoconfigure.orm.jpa.HibernateJpaAutoConfiguration;
import org.springframework.context.ApplicationContextException;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.core.env.Environment;
import org.springframework.jdbc.datasource.DriverManagerDataSource;

/** An application that starts before its database is there. */
@Timeout(value = 3, unit = TimeUnit.MINUTES) // ends what has failed
class OutageTest {
    private static final LinkedBlockingQueue<String> DONE = new LinkedBlockingQueue<>();

    @SpringBootConfiguration
    @EnableAutoConfiguration( // without what needs the database at the start
            exclude = {HibernateJpaAutoConfiguration.class, JpaRepositoriesAutoConfiguration.class},
            excludeName = "org.springframework.modulith.events.jdbc.JdbcEventPublicationAutoConfiguration")
    static class Application {
        @Bean
        PenstockWorker jobs() {
            return new PenstockWorker("jobs", job -> {
                DONE.add(job.text());
                return null;
            });
        }
    }

    private static AtomicBoolean away;

    static class Away {
        @Bean
        DataSource dataSource(Environment of) {
            return new DriverManagerDataSource(of.getRequiredProperty("spring.datasource.url"), of.getRequiredProperty("spring.datasource.username"), of.getProperty("spring.datasource.password")) {
                @Override
                public Connection getConnection() throws SQLException {
                    if (away.get()) {
                        throw new SQLException("the server does not answer", "08001");
                    }
                    return super.getConnection();
                }
            };
        }
    }

    private static ConfigurableApplicationContext run(Database database, boolean failFast) {
        return database.application(Map.of("spring.datasource.hikari.connection-timeout", "250", "penstock.fail-fast", failFast), Application.class).run();
    }

    private static Status health(ConfigurableApplicationContext application) {
        return application.getBean("penstockHealthIndicator", HealthIndicator.class).health().getStatus();
    }

    private static void until(ConfigurableApplicationContext application, Status status) throws InterruptedException {
        while (!health(application).equals(status)) {
            Thread.sleep(20);
        }
    }

    /** The database comes back without help, and the worker waits for it. A schema that is missing does not. */
    @Test
    void onlyWhatTimeDoesNotCureIsAnError() throws Exception {
        try (Database database = new Database(); Lines lines = new Lines()) {
            away = new AtomicBoolean(true);
            try (ConfigurableApplicationContext application = database.application(Map.of(), Application.class, Away.class).initializers(context -> lines.attach()).run()) {
                lines.await("cannot reach the database, and tries until it can: the server does not answer (08001)");
                until(application, Status.DOWN);
                away.set(false);
                lines.await("or penstock.migrate=true");
            }
            List<String> levels = lines.levels.stream().filter(line -> line.contains("cannot reach") || line.contains("is started again")).map(line -> line.substring(0, 5)).distinct().toList();
            assertEquals(List.of("WARN ", "ERROR"), levels);
        }
    }

    @Test
    void aWorkerBeginsWhenItsDatabaseIsThere() throws Exception {
        try (Database database = Database.missing()) {
            var refused = assertThrows(ApplicationContextException.class, () -> run(database, true));
            var shown = new StartAnalyzer().analyze(refused); // in place of the stacks
            assertTrue(shown.getDescription().startsWith("penstock.fail-fast is true, and the worker of queue jobs cannot begin: "), shown::getDescription);
            try (ConfigurableApplicationContext application = run(database, false)) {
                until(application, Status.DOWN);
                database.create();
                database.migrated();
                database.jdbc.execute("select penstock.create_queue('jobs')");
                Penstock.on(database.source).enqueue("jobs", NewJob.of("a"));
                assertEquals("a", DONE.take());
                until(application, Status.UP);
                database.jdbc.execute("alter function penstock.maintain_queue(text) rename to away");
                until(application, Status.DOWN);
                assertTrue(application.getBean("penstockHealthIndicator", HealthIndicator.class).health().getDetails().containsKey("jobs"));
                database.jdbc.execute("alter function penstock.away(text) rename to maintain_queue");
                until(application, Status.UP);
                Penstock.on(database.source).enqueue("jobs", NewJob.of("b"));
                assertEquals("b", DONE.take());
                database.allowConnections(false); // the worker goes on, and does not begin again
                until(application, Status.DOWN);
                database.allowConnections(true);
                until(application, Status.UP);
                Penstock.on(database.source).enqueue("jobs", NewJob.of("c"));
                assertEquals("c", DONE.take());
            }
        }
    }
}
