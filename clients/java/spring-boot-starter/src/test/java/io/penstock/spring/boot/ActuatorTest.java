package io.penstock.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.Meter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.penstock.Handler;
import io.penstock.NewJob;
import io.penstock.Outcome;
import io.penstock.Penstock;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.SmartLifecycle;
import org.springframework.context.annotation.Bean;
import org.springframework.jdbc.datasource.DriverManagerDataSource;

/** Metrics, and what Actuator answers over HTTP. */
@Timeout(value = 3, unit = TimeUnit.MINUTES) // ends what has failed
class ActuatorTest {
    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class Application {
        @PenstockHandler(queue = "emails", kind = "welcome")
        void welcome(String text) {}

        @PenstockHandler(queue = "emails", kind = "dead")
        Outcome dead(String text) {
            return Outcome.deadLetter("no");
        }

        @Bean
        PenstockWorker all() {
            return new PenstockWorker("all", job -> null);
        }

        @Bean
        PenstockWorker kinds() {
            return new PenstockWorker("kinds", Handler.byKind(Map.of("known", job -> null)));
        }
    }

    private static double ended(ConfigurableApplicationContext application, String queue, String kind, String result) {
        Counter counter = application.getBean(MeterRegistry.class).find("penstock.worker.ended.jobs").tags("queue", queue, "kind", kind, "result", result).counter();
        return counter == null ? -1 : counter.count();
    }

    private static String get(ConfigurableApplicationContext application, String path) throws Exception {
        URI uri = URI.create("http://127.0.0.1:" + application.getEnvironment().getProperty("local.server.port") + path);
        return HttpClient.newHttpClient().send(HttpRequest.newBuilder(uri).build(), BodyHandlers.ofString()).body();
    }

    @Test
    void theWebServerStopsBeforeTheWorkersDrain() throws Exception {
        try (Database database = new Database()) {
            var stopped = new ArrayList<String>();
            try (var application = database.application(Map.of("penstock.migrate", true, "server.port", 0), Application.class).web(WebApplicationType.SERVLET).run()) {
                for (var bean : application.getBeansOfType(SmartLifecycle.class).entrySet()) {
                    if (bean.getKey().startsWith("webServer") || bean.getKey().equals("penstockWorkers")) {
                        stopped.add(bean.getKey() + " " + bean.getValue().getPhase());
                    }
                }
            }
            stopped.sort(Comparator.comparing(bean -> -Integer.parseInt(bean.substring(bean.indexOf(' ') + 1))));
            assertEquals(List.of("webServerGracefulShutdown", "webServerStartStop", "penstockWorkers"), stopped.stream().map(bean -> bean.substring(0, bean.indexOf(' '))).toList());
        }
    }

    /** As Spring Boot 4's tests do with a context that they keep. */
    @Test
    void anApplicationThatStopsAndStartsHasItsGaugesOnce() throws Exception {
        try (Database database = new Database(); var application = database.application(Map.of("penstock.migrate", true), Application.class).run()) {
            MeterRegistry registry = application.getBean(MeterRegistry.class);
            int gauges = registry.find("penstock.queue.jobs").gauges().size();
            application.stop();
            assertEquals(0, registry.find("penstock.queue.jobs").gauges().size(), "while it is stopped");
            application.start();
            assertEquals(gauges, registry.find("penstock.queue.jobs").gauges().size());
        }
    }

    @Test
    void jobsAreCountedAndQueuesShown() throws Exception {
        try (Database database = new Database()) {
            Map<String, Object> properties = Map.of("penstock.migrate", true, "server.port", 0, "management.endpoints.web.exposure.include", "health,penstock",
                "management.endpoint.health.show-details", "always");
            try (var application = database.application(properties, Application.class).web(WebApplicationType.SERVLET).run()) {
                Penstock penstock = Penstock.on(database.source);
                assertEquals(0, ended(application, "emails", "welcome", "done"), "it is there before the first job");
                penstock.enqueueMany("emails", List.of(NewJob.of("a").kind("welcome"), NewJob.of("b").kind("dead"), NewJob.of("c").kind("typo"), NewJob.of("d").kind("typo too")));
                penstock.enqueue("all", NewJob.of("e").kind("any"));
                penstock.enqueueMany("kinds", List.of(NewJob.of("f").kind("known"), NewJob.of("g").kind("typo")));
                while (ended(application, "emails", "welcome", "done") < 1 || ended(application, "emails", "dead", "dead") < 1
                    || ended(application, "emails", "other", "released") < 2 || ended(application, "all", "", "done") < 1
                    || ended(application, "kinds", "known", "done") < 1 || ended(application, "kinds", "other", "released") < 1) {
                    Thread.sleep(20);
                }
                assertEquals(-1, ended(application, "emails", "typo", "released"));
                assertEquals(-1, ended(application, "kinds", "", "done"), "Handler.byKind tells its kinds");
                MeterRegistry registry = application.getBean(MeterRegistry.class);
                assertEquals(1, registry.get("penstock.worker.job.duration").tags("queue", "emails", "kind", "welcome").timer().count());
                assertEquals(1, registry.get("penstock.worker.enqueue.to.start").tags("queue", "emails", "kind", "dead").timer().count());
                for (String timer : List.of("penstock.worker.enqueue.to.start", "penstock.worker.job.duration")) {
                    assertNull(registry.find(timer).tags("queue", "emails", "kind", "other").timer(), "a job without a handler comes back each time, and does not start");
                }

                List<Meter> meters = new ArrayList<>();
                for (String state : List.of("ready", "running", "delayed", "waiting")) {
                    meters.add(registry.get("penstock.queue.jobs").tags("queue", "emails", "state", state).gauge());
                }
                meters.add(registry.get("penstock.queue.dead.letters").tag("queue", "emails").gauge());
                meters.add(registry.get("penstock.queue.oldest.ready.age").tag("queue", "emails").gauge());
                List<Double> values = List.of();
                while (values.isEmpty() || values.get(0) + values.get(1) + values.get(2) != 2) { // the jobs without a handler: ready, claimed again, or at rest
                    values = meters.stream().map(m -> ((Gauge) m).value()).toList();
                }
                assertEquals(List.of(0.0, 1.0), values.subList(3, 5), "waiting jobs and dead letters");

                for (String meter : List.of("penstock.worker.ended.jobs", "penstock.worker.enqueue.to.start", "penstock.worker.job.duration")) {
                    assertNotNull(registry.get(meter).meter().getId().getDescription(), meter + " has a help text");
                }

                String shown = get(application, "/actuator/penstock");
                String numbers = "\"ready\":N,\"running\":N,\"delayed\":N,\"waiting\":0,\"dead\":1,\"oldest_ready_seconds\":[0-9.E-]+".replace("N", "[0-2]"); // as above
                assertTrue(Pattern.compile("\"emails\":\\{\"jobs\":\\{" + numbers + "\\},\"worker\":\"works\"\\}").matcher(shown).find(), shown);
                assertTrue(shown.contains("\"all\":{"), shown);
                String role = "java_denied_" + ProcessHandle.current().pid();
                database.jdbc.execute("create role " + role + " login password 'x'; select penstock.grant_worker('emails', '" + role + "')");
                try {
                    var denied = new PenstockEndpoint(application.getBean(PenstockWorkers.class), new DriverManagerDataSource(database.source.getUrl(), role, "x"),
                        application.getBean(PenstockProperties.class));
                    assertEquals("the role of the DataSource may not see this queue (run: penstock queue grant emails ROLE --operate)", denied.queue("emails").get("error"));
                    SimpleMeterRegistry others = new SimpleMeterRegistry();
                    new WorkerMeters(others, new QueueStatus(new DriverManagerDataSource(database.source.getUrl(), role, "x"), application.getBean(PenstockProperties.class))).queues(List.of("emails"));
                    assertEquals(Double.NaN, others.get("penstock.queue.dead.letters").tag("queue", "emails").gauge().value(), "a role that may not see the queue");
                    database.jdbc.execute("select penstock.grant_operator('emails', '" + role + "')");
                    assertNull(denied.queue("emails").get("error"), "the grant that it names is enough");
                } finally {
                    database.jdbc.execute("drop owned by " + role + "; drop role " + role);
                }
                assertTrue(get(application, "/actuator/penstock/nowhere").contains("there is no queue 'nowhere'"));
                assertTrue(get(application, "/actuator/health").contains("\"penstock\":{\"status\":\"UP\"}"));
                database.jdbc.execute("alter function penstock.maintain_queue(text) rename to away");
                while (!get(application, "/actuator/penstock/all").contains("does not work: ERROR: function penstock.maintain_queue(text) does not exist")) {
                    Thread.sleep(20);
                }
                String health = get(application, "/actuator/health");
                assertTrue(health.contains("\"status\":\"DOWN\"") && health.contains("\"all\":\"ERROR: function"), health);
            }
        }
    }
}
