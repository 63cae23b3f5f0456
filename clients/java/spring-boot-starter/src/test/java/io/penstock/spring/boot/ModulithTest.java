package io.penstock.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ApplicationEventPublisher;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Import;
import org.springframework.core.io.DefaultResourceLoader;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.modulith.events.ApplicationModuleListener;
import org.springframework.modulith.events.EventExternalizationConfiguration;
import org.springframework.modulith.events.Externalized;
import org.springframework.transaction.annotation.Transactional;

/** An application with Spring Modulith, whose registry of publications is in the same database. */
@Timeout(value = 3, unit = TimeUnit.MINUTES) // ends what has failed
class ModulithTest {
    private static final LinkedBlockingQueue<String> HEARD = new LinkedBlockingQueue<>();

    @Externalized("order.placed::#{email()}")
    public record OrderPlaced(String email, int total) {}

    @Externalized
    public record Mapped(String text) {}

    public record Inside(String text) {}

    static class Shop {
        private final ApplicationEventPublisher events;
        private final JdbcTemplate template;

        Shop(ApplicationEventPublisher events, JdbcTemplate template) {
            this.events = events;
            this.template = template;
        }

        @Transactional
        public void place(Object event, boolean fails) {
            template.update("insert into placed values (?)", event.toString());
            events.publishEvent(event);
            if (fails) {
                throw new IllegalStateException("rolled back");
            }
        }

        public void outside(Object event) {
            events.publishEvent(event);
        }

        @ApplicationModuleListener
        public void on(OrderPlaced order) {
            HEARD.add(order.email());
        }
    }

    @SpringBootConfiguration
    @EnableAutoConfiguration
    @Import(Shop.class)
    static class Application {
        @Bean
        EventExternalizationConfiguration externalization() {
            return EventExternalizationConfiguration.defaults("io.penstock").mapping(Mapped.class, Mapped::text).headers(Mapped.class, e -> Map.of("length", e.text().length())).build();
        }
    }

    @Test
    void anEventIsAMessageOfItsTransaction() throws Exception {
        String guide = Files.readString(Path.of("../../../docs/guides/spring-boot.md"));
        assertTrue(guide.contains("@Externalized(\"" + OrderPlaced.class.getAnnotation(Externalized.class).value() + "\")"), "the guide has the same event");
        var setting = Pattern.compile("```yaml\n(penstock\\.modulith\\.\\S+): (\\S+)\n").matcher(guide);
        assertTrue(setting.find());
        try (Database database = new Database()) {
            Map<String, Object> properties = Map.of("penstock.migrate", true, setting.group(1), setting.group(2), "spring.modulith.events.jdbc.schema-initialization.enabled", true);
            try (var application = database.application(properties, Application.class).run()) {
                database.jdbc.execute("create table placed (event text)");
                Shop shop = application.getBean(Shop.class);
                shop.place(new OrderPlaced("ann", 10), false);
                assertThrows(IllegalStateException.class, () -> shop.place(new OrderPlaced("bob", 20), true));
                shop.place(new Mapped("as it is"), false);
                shop.place(new Inside("not externalized"), false);
                assertEquals(List.of("order.placed ann {\"email\":\"ann\",\"total\":10} {}", "spring.boot.ModulithTest$Mapped  as it is {\"length\": \"8\"}"), database.jdbc.queryForList(
                    "select concat_ws(' ', topic, coalesce(key, ''), convert_from(payload, 'UTF8'), coalesce(headers, '{}')) from penstock.orders order by seq", String.class));
                assertEquals(3, database.jdbc.queryForObject("select count(*) from placed", Integer.class));
                assertEquals("ann", HEARD.take(), "listeners of the application hear it as well");
                var e = assertThrows(IllegalStateException.class, () -> shop.outside(new OrderPlaced("cy", 30)));
                assertTrue(e.getMessage().contains("@Transactional"), e.getMessage());
                shop.outside(new Inside("needs no transaction"));
            }
            try (var application = database.application(Map.of("spring.modulith.events.jdbc.schema-initialization.enabled", true), Application.class).run()) {
                application.getBean(Shop.class).place(new OrderPlaced("dan", 40), false);
                assertEquals(2, database.jdbc.queryForObject("select count(*) from penstock.orders", Integer.class), "nothing is published where no outbox is named");
            }
        }
    }

    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class Plain {}

    @Test
    void withoutModulithAnOutboxForItIsAnError() {
        ClassLoader without = new ClassLoader(getClass().getClassLoader()) {
            @Override
            protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
                if (name.equals("org.springframework.modulith.events.support.BrokerRouting")) {
                    throw new ClassNotFoundException(name);
                }
                return super.loadClass(name, resolve);
            }
        };
        try (Database database = new Database()) {
            var application = database.application(Map.of("penstock.modulith.outbox", "orders"), Plain.class).resourceLoader(new DefaultResourceLoader(without));
            Throwable e = assertThrows(Exception.class, application::run);
            while (e.getCause() != null) {
                e = e.getCause();
            }
            assertTrue(e.getMessage().contains("add the dependency org.springframework.modulith:spring-modulith-events-core"), e.toString());
        }
    }
}
