package io.penstock.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.penstock.NewJob;
import io.penstock.Penstock;
import java.io.BufferedReader;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.event.ContextClosedEvent;
import org.springframework.context.event.EventListener;

/** An application without a web server, in a process that gets SIGTERM. */
@Timeout(value = 3, unit = TimeUnit.MINUTES) // ends what has failed
class ShutdownTest {
    @SpringBootConfiguration
    @EnableAutoConfiguration(excludeName = { // Modulith's scheduler has a thread that keeps the process alive
        "org.springframework.modulith.events.config.EventPublicationAutoConfiguration", "org.springframework.modulith.events.jdbc.JdbcEventPublicationAutoConfiguration"})
    static class Application {
        private final CountDownLatch closing = new CountDownLatch(1);

        public static void main(String[] args) {
            SpringApplication.run(Application.class, args);
            System.out.println("main has returned");
        }

        @EventListener(ContextClosedEvent.class)
        void closes() {
            closing.countDown();
        }

        @PenstockHandler(queue = "jobs", kind = "fails")
        void fails() throws InterruptedException {
            System.out.println("fails runs");
            closing.await();
            throw new IllegalStateException("mailbox full");
        }

        @PenstockHandler(queue = "jobs", kind = "stays")
        void stays() throws InterruptedException {
            System.out.println("stays runs");
            new CountDownLatch(1).await();
        }
    }

    @Test
    void itRunsUntilSigtermAndLogsHowItStops() throws Exception {
        try (Database database = new Database().migrated()) {
            database.jdbc.execute("select penstock.create_queue('jobs')");
            Process process = new ProcessBuilder(ProcessHandle.current().info().command().orElseThrow(), "-cp", System.getProperty("java.class.path"), Application.class.getName(),
                "--spring.main.web-application-type=none", "--spring.flyway.enabled=false", "--penstock.work.drain-timeout=300ms", "--spring.datasource.url=" + database.source.getUrl(),
                "--spring.datasource.username=" + database.source.getUsername(), "--spring.datasource.password=" + database.source.getPassword()).redirectErrorStream(true).start();
            try (BufferedReader out = process.inputReader()) {
                await(out, "main has returned");
                Penstock.on(database.source).enqueueMany("jobs", List.of(NewJob.of("").kind("fails"), NewJob.of("").kind("stays")));
                await(out, "s runs");
                await(out, "s runs");
                process.toHandle().destroy();
                String all = await(out, "the worker of queue jobs has stopped; interrupted jobs: 1"); // the handler and the worker may be first
                assertTrue(all.contains("the worker of queue jobs stops; running jobs: "), all);
                assertTrue(all.lines().anyMatch(line -> line.contains("WARN") && line.contains("of queue jobs failed: java.lang.IllegalStateException: mailbox full")), all);
                while (out.readLine() != null) { // until it ends
                }
                assertEquals(143, process.waitFor());
            } finally {
                process.destroyForcibly();
            }
        }
    }

    /** Reads up to a line with the part, and returns all that was read. */
    private static String await(BufferedReader out, String part) throws Exception {
        StringBuilder all = new StringBuilder();
        for (String line; (line = out.readLine()) != null; ) {
            all.append(line).append('\n');
            if (line.contains(part)) {
                return all.toString();
            }
        }
        throw new AssertionError("the process ended without \"" + part + "\": " + all);
    }
}
