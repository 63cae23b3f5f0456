package io.penstock.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.penstock.NewJob;
import io.penstock.Penstock;
import io.penstock.PenstockException;
import java.net.URI;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.actuate.health.Status;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.autoconfigure.data.jpa.JpaRepositoriesAutoConfiguration;
import org.springframework.boot.autoconfigure.orm.jpa.HibernateJpaAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ApplicationContextException;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DriverManagerDataSource;

/** An application that starts before its database is there. */
@Timeout(value = 3, unit = TimeUnit.MINUTES) // ends what has failed
class OutageTest {
    private static final String NAME = "java_outage_" + ProcessHandle.current().pid();
    private static final URI SERVER = URI.create(System.getenv("PENSTOCK_TEST_POSTGRES"));
    private static final String QUERY = SERVER.getRawQuery() == null ? "" : "?" + SERVER.getRawQuery();
    private static final LinkedBlockingQueue<String> DONE = new LinkedBlockingQueue<>();

    @SpringBootConfiguration
    @EnableAutoConfiguration(exclude = {HibernateJpaAutoConfiguration.class, JpaRepositoriesAutoConfiguration.class})
    static class Application {
        @Bean
        PenstockWorker jobs() {
            return new PenstockWorker("jobs", job -> {
                DONE.add(job.text());
                return null;
            });
        }
    }

    private static DriverManagerDataSource at(String database) {
        String[] user = (SERVER.getUserInfo() == null ? "postgres" : SERVER.getUserInfo()).split(":", 2);
        return new DriverManagerDataSource("jdbc:postgresql://" + SERVER.getHost() + ":" + SERVER.getPort() + "/" + database + QUERY, user[0], user.length > 1 ? user[1] : "");
    }

    private static ConfigurableApplicationContext run(boolean failFast) {
        DriverManagerDataSource database = at(NAME);
        return new SpringApplicationBuilder(Application.class).web(WebApplicationType.NONE).properties(Map.of("spring.datasource.url", database.getUrl(),
            "spring.datasource.username", database.getUsername(), "spring.datasource.password", database.getPassword(),
            "spring.datasource.hikari.connection-timeout", "250", "spring.main.banner-mode", "off", "penstock.fail-fast", failFast)).run();
    }

    private static Status health(ConfigurableApplicationContext application) {
        return application.getBean("penstockHealthIndicator", HealthIndicator.class).health().getStatus();
    }

    private static void until(ConfigurableApplicationContext application, Status status) throws InterruptedException {
        while (!health(application).equals(status)) {
            Thread.sleep(20);
        }
    }

    @Test
    void aWorkerBeginsWhenItsDatabaseIsThere() throws Exception {
        JdbcTemplate server = new JdbcTemplate(at(SERVER.getPath().substring(1)));
        assertThrows(PenstockException.class, () -> {
            try {
                run(true);
            } catch (ApplicationContextException e) {
                throw e.getCause();
            }
        });
        try (ConfigurableApplicationContext application = run(false)) {
            until(application, Status.DOWN);
            server.execute("create database " + NAME);
            ProcessBuilder migrate = new ProcessBuilder(System.getenv("PENSTOCK_BIN"), "migrate").inheritIO();
            migrate.environment().put("PENSTOCK_DATABASE_URL", SERVER.resolve("/" + NAME) + QUERY);
            assertEquals(0, migrate.start().waitFor());
            JdbcTemplate database = new JdbcTemplate(at(NAME));
            database.execute("select penstock.create_queue('jobs')");
            Penstock.on(at(NAME)).enqueue("jobs", NewJob.of("a"));
            assertEquals("a", DONE.take());
            until(application, Status.UP);
            database.execute("alter function penstock.maintain_queue(text) rename to away");
            until(application, Status.DOWN);
            assertTrue(application.getBean("penstockHealthIndicator", HealthIndicator.class).health().getDetails().containsKey("jobs"));
            database.execute("alter function penstock.away(text) rename to maintain_queue");
            until(application, Status.UP);
            Penstock.on(at(NAME)).enqueue("jobs", NewJob.of("b"));
            assertEquals("b", DONE.take());
            server.execute("alter database " + NAME + " allow_connections false"); // the worker goes on, and does not begin again
            server.queryForList("select pg_terminate_backend(pid) from pg_stat_activity where datname = ?", NAME);
            until(application, Status.DOWN);
            server.execute("alter database " + NAME + " allow_connections true");
            until(application, Status.UP);
            Penstock.on(at(NAME)).enqueue("jobs", NewJob.of("c"));
            assertEquals("c", DONE.take());
        } finally {
            server.execute("drop database if exists " + NAME + " with (force)");
        }
    }
}
