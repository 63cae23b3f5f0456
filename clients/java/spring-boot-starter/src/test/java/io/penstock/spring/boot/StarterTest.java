package io.penstock.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.penstock.Message;
import io.penstock.NewJob;
import io.penstock.Outcome;
import io.penstock.Penstock;
import io.penstock.WorkOptions;
import io.penstock.WorkOptions.End;
import jakarta.persistence.Entity;
import jakarta.persistence.EntityManager;
import jakarta.persistence.Id;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Import;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.transaction.annotation.Transactional;

/** An application with JPA and a pool, on a new database: one with autocommit off, as JPA likes it. */
@Timeout(value = 3, unit = TimeUnit.MINUTES) // ends what has failed
class StarterTest {
    private static final LinkedBlockingQueue<Map.Entry<String, End>> ENDS = new LinkedBlockingQueue<>();
    private static Database database;
    private static ConfigurableApplicationContext application;

    @Entity(name = "orders")
    static class Order {
        @Id
        String id;

        Order() {}

        Order(String id) {
            this.id = id;
        }
    }

    static class Shop {
        private final Penstock penstock;
        private final EntityManager entities;
        private final JdbcTemplate template;

        Shop(Penstock penstock, EntityManager entities, JdbcTemplate template) {
            this.penstock = penstock;
            this.entities = entities;
            this.template = template;
        }

        @Transactional
        public void order(String id, boolean fails) {
            entities.persist(new Order(id));
            entities.flush();
            template.update("insert into audit values (?)", id);
            penstock.publish("orders", Message.of(id));
            if (fails) {
                throw new IllegalStateException("rolled back");
            }
        }

        @Transactional
        public void enqueue(String text) {
            penstock.enqueue("jobs", NewJob.of(text));
        }
    }

    @SpringBootConfiguration
    @EnableAutoConfiguration
    @Import(Shop.class)
    static class Application {
        @Bean
        PenstockWorker jobs(JdbcTemplate template) {
            return PenstockWorker.transactional("jobs", job -> {
                template.update("insert into audit values (?)", job.text());
                if (job.text().equals("thrown")) {
                    throw new Exception("no");
                }
                return job.text().equals("bad") ? Outcome.deadLetter("bad") : null;
            }).options(new WorkOptions().onEnd((job, end) -> ENDS.add(Map.entry(job.text(), end))));
        }
    }

    @BeforeAll
    static void start() throws Exception {
        database = new Database().migrated();
        database.jdbc.execute("create table orders (id text primary key); create table audit (id text)");
        database.jdbc.execute("select penstock.create_queue('jobs'), penstock.create_outbox('orders')");
        application = database.application(Map.of("spring.datasource.hikari.auto-commit", "false"), Application.class).run();
    }

    @AfterAll
    static void drop() {
        if (application != null) {
            SpringApplication.exit(application);
        }
        database.close();
    }

    private static String texts(String sql) {
        return application.getBean(JdbcTemplate.class).queryForObject(sql, String.class);
    }

    @Test
    void whatIsPublishedIsInTheTransactionOfJpaAndJdbcTemplate() {
        Shop shop = application.getBean(Shop.class);
        shop.order("one", false);
        assertThrows(IllegalStateException.class, () -> shop.order("two", true));
        assertEquals("one one one", texts("select concat_ws(' ', (select string_agg(id, ',') from orders), (select string_agg(id, ',') from audit where id in ('one', 'two')),"
            + " (select string_agg(convert_from(payload, 'UTF8'), ',') from penstock.orders))"));
    }

    @Test
    void withoutATransactionItThrows() {
        Penstock penstock = application.getBean(Penstock.class);
        var e = assertThrows(IllegalStateException.class, () -> penstock.publish("orders", Message.of("")));
        assertTrue(e.getMessage().contains("@Transactional"), e.getMessage());
        assertThrows(IllegalStateException.class, () -> penstock.queue("jobs").retryDeadJobs(List.of(1L)));
    }

    @Test
    void whatOnlyReadsNeedsNoTransaction() {
        var jobs = application.getBean(Penstock.class).queue("jobs");
        assertEquals(List.of(Optional.empty(), List.of(), 0L), List.of(jobs.findJob(123_456), jobs.deadJobs(1, 123_456), jobs.status().expired()));
        assertEquals(List.of(List.of(), List.of()), List.of(jobs.schedules(), jobs.groupPolicies(10, "")));
    }

    @Test
    void aTransactionalWorkerDoesEverythingOrNothing() throws Exception {
        Shop shop = application.getBean(Shop.class);
        Map<String, End> ends = new HashMap<>();
        for (String text : new String[] {"good", "bad", "thrown"}) {
            shop.enqueue(text);
        }
        while (ends.size() < 3) {
            var end = ENDS.take();
            ends.put(end.getKey(), end.getValue());
        }
        assertEquals(Map.of("good", End.SETTLED, "bad", End.DEAD, "thrown", End.FAILED), ends);
        assertEquals("good", texts("select string_agg(id, ' ') from audit where id in ('good', 'bad', 'thrown')"));
    }
}
