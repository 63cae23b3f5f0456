package io.penstock.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DriverManagerDataSource;

/** A new database on the server that PENSTOCK_TEST_POSTGRES names, and applications on it. */
final class Database implements AutoCloseable {
    private static final URI SERVER = URI.create(System.getenv("PENSTOCK_TEST_POSTGRES"));
    private static final String QUERY = SERVER.getRawQuery() == null ? "" : "?" + SERVER.getRawQuery();
    private static final AtomicInteger COUNT = new AtomicInteger();

    private final String name = "java_spring_" + ProcessHandle.current().pid() + "_" + COUNT.incrementAndGet();
    private final JdbcTemplate server = new JdbcTemplate(at(SERVER.getPath().substring(1)));
    final DriverManagerDataSource source = at(name);
    final JdbcTemplate jdbc = new JdbcTemplate(source);

    Database() {
        create();
    }

    private Database(boolean created) {}

    /** One that create makes later. */
    static Database missing() {
        return new Database(false);
    }

    void create() {
        server.execute("create database " + name);
    }

    /** Without them, those that are there are cut as well. */
    void allowConnections(boolean allowed) {
        server.execute("alter database " + name + " allow_connections " + allowed);
        if (!allowed) {
            server.queryForList("select pg_terminate_backend(pid) from pg_stat_activity where datname = ?", name);
        }
    }

    Database migrated() throws Exception {
        ProcessBuilder migrate = new ProcessBuilder(System.getenv("PENSTOCK_BIN"), "migrate").inheritIO();
        migrate.environment().put("PENSTOCK_DATABASE_URL", SERVER.resolve("/" + name) + QUERY);
        assertEquals(0, migrate.start().waitFor());
        return this;
    }

    /** An application, to run with classes and properties of the test. */
    SpringApplicationBuilder application(Map<String, Object> properties, Class<?>... sources) {
        Map<String, Object> all = new HashMap<>(Map.of("spring.datasource.url", source.getUrl(), "spring.datasource.username", source.getUsername(),
            "spring.datasource.password", source.getPassword(), "spring.main.banner-mode", "off", "spring.flyway.enabled", "false"));
        all.putAll(properties);
        return new SpringApplicationBuilder(sources).web(WebApplicationType.NONE).properties(all);
    }

    private static DriverManagerDataSource at(String database) {
        String[] user = (SERVER.getUserInfo() == null ? "postgres" : SERVER.getUserInfo()).split(":", 2);
        return new DriverManagerDataSource("jdbc:postgresql://" + SERVER.getHost() + ":" + SERVER.getPort() + "/" + database + QUERY, user[0], user.length > 1 ? user[1] : "");
    }

    @Override
    public void close() {
        server.execute("drop database if exists " + name + " with (force)");
    }
}
