package io.penstock;

import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.postgresql.ds.PGSimpleDataSource;

/** A new database on the server that PENSTOCK_TEST_POSTGRES names, migrated by PENSTOCK_BIN, with a queue jobs, an outbox orders and an inbox billing. */
final class Database implements AutoCloseable {
    private static final AtomicInteger COUNT = new AtomicInteger();

    final PGSimpleDataSource dataSource;
    private final String name = "java_" + ProcessHandle.current().pid() + "_" + COUNT.incrementAndGet();

    Database() throws Exception {
        this("");
    }

    Database(String options) throws Exception {
        this(options, true);
        execute("select penstock.create_queue('jobs')", "select penstock.create_outbox('orders')", "select penstock.create_inbox('billing')");
    }

    /** One that is not migrated. */
    static Database empty() throws Exception {
        return new Database("", false);
    }

    private Database(String options, boolean migrated) throws Exception {
        try (Connection server = at(null).getConnection(); var statement = server.createStatement()) {
            statement.execute("create database " + name + " " + options);
        }
        dataSource = at(name);
        if (migrated) {
            penstock("migrate");
        }
    }

    private static String query() {
        String query = URI.create(System.getenv("PENSTOCK_TEST_POSTGRES")).getRawQuery();
        return query == null ? "" : "?" + query;
    }

    /** What the program prints. Fails if its exit code is not 0. */
    String penstock(String... arguments) throws IOException, InterruptedException {
        ProcessBuilder process = new ProcessBuilder(Stream.concat(Stream.of(System.getenv("PENSTOCK_BIN")), Stream.of(arguments)).toList()).redirectErrorStream(true);
        process.environment().put("PENSTOCK_DATABASE_URL", URI.create(System.getenv("PENSTOCK_TEST_POSTGRES")).resolve("/" + name) + query());
        Process running = process.start();
        String said = new String(running.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (running.waitFor() != 0) {
            throw new AssertionError(said);
        }
        return said;
    }

    private static PGSimpleDataSource at(String name) {
        URI uri = URI.create(System.getenv("PENSTOCK_TEST_POSTGRES"));
        PGSimpleDataSource at = new PGSimpleDataSource();
        at.setUrl("jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + "/" + (name == null ? uri.getPath().substring(1) : name) + query());
        if (uri.getUserInfo() != null) {
            String[] user = uri.getUserInfo().split(":", 2);
            at.setUser(user[0]);
            at.setPassword(user.length > 1 ? user[1] : null);
        }
        return at;
    }

    void execute(String... statements) throws SQLException {
        try (Connection connection = dataSource.getConnection(); var statement = connection.createStatement()) {
            for (String s : statements) {
                statement.execute(s);
            }
        }
    }

    Object value(String sql) throws SQLException {
        try (Connection connection = dataSource.getConnection()) {
            return Execute.on(connection).execute(sql).get(0)[0];
        }
    }

    @Override
    public void close() throws Exception {
        try (Connection server = at(null).getConnection(); var statement = server.createStatement()) {
            statement.execute("drop database " + name + " with (force)");
        }
    }
}
