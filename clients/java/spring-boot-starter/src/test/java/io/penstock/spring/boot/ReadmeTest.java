package io.penstock.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.penstock.Handler;
import io.penstock.Message;
import io.penstock.NewJob;
import io.penstock.Outcome;
import io.penstock.Penstock;
import java.io.StringWriter;
import java.net.URI;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import javax.sql.DataSource;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.postgresql.ds.PGSimpleDataSource;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.core.io.DefaultResourceLoader;

/** The Java of clients/java/README.md compiles in a frame that has what the reader has, and does what it says. */
@Timeout(value = 3, unit = TimeUnit.MINUTES) // ends what has failed
class ReadmeTest {
    private static final String NAME = "java_blocks_" + ProcessHandle.current().pid();
    private static final String CLASS_PATH = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
    private static List<String> blocks;
    private static String server;
    private static String database;

    @TempDir
    Path folder;

    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class Application {}

    @BeforeAll
    static void create() throws Exception {
        blocks = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL).matcher(Files.readString(Path.of("../README.md"))).results().map(m -> m.group(1)).toList();
        assertEquals(6, blocks.size());
        URI uri = URI.create(System.getenv("PENSTOCK_TEST_POSTGRES"));
        String query = uri.getRawQuery() == null ? "" : uri.getRawQuery();
        String[] user = (uri.getUserInfo() == null ? "postgres" : uri.getUserInfo()).split(":", 2);
        String login = "?user=" + user[0] + (user.length > 1 ? "&password=" + user[1] : "") + (query.isEmpty() ? "" : "&" + query);
        String base = "jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + "/";
        server = base + uri.getPath().substring(1) + login;
        database = base + NAME + login;
        execute(server, "create database " + NAME);
        ProcessBuilder migrate = new ProcessBuilder(System.getenv("PENSTOCK_BIN"), "migrate").inheritIO();
        migrate.environment().put("PENSTOCK_DATABASE_URL", uri.resolve("/" + NAME) + (query.isEmpty() ? "" : "?" + query));
        assertEquals(0, migrate.start().waitFor());
        execute(database, "select penstock.create_queue('emails'), penstock.create_outbox('orders'), penstock.create_inbox('billing')");
    }

    @AfterAll
    static void drop() throws Exception {
        execute(server, "drop database if exists " + NAME + " with (force)");
    }

    private static void execute(String url, String sql) throws Exception {
        try (Connection connection = DriverManager.getConnection(url); var statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    private static int number(String sql) throws Exception {
        try (Connection connection = DriverManager.getConnection(database); var statement = connection.createStatement(); var rows = statement.executeQuery(sql)) {
            rows.next();
            return rows.getInt(1);
        }
    }

    private static DataSource dataSource() {
        PGSimpleDataSource source = new PGSimpleDataSource();
        source.setUrl(database);
        return source;
    }

    private static int jobs() throws Exception {
        return number("select ready + running + delayed + waiting from penstock.queue_status('emails')");
    }

    /** Compiles a source, and loads its class. */
    private Class<?> compiled(String name, String source) throws Exception {
        Path file = folder.resolve(name + ".java");
        Files.writeString(file, source);
        var said = new StringWriter();
        var compiler = ToolProvider.getSystemJavaCompiler();
        boolean done = compiler.getTask(said, null, null, List.of("-d", folder.toString(), "-cp", folder + ":" + CLASS_PATH, "-proc:none", "-Xlint:all,-classfile", "-Werror"), null,
            compiler.getStandardFileManager(null, null, null).getJavaFileObjects(file)).call();
        assertTrue(done, said + source);
        return new URLClassLoader(new URL[] {folder.toUri().toURL()}, ReadmeTest.class.getClassLoader()).loadClass(name);
    }

    /** A class with a block as the body of run, and what the block calls. */
    private Class<?> around(int block, String name, String parameters, String more) throws Exception {
        return compiled(name, "import io.penstock.*;\nimport java.sql.Connection;\nimport java.time.Duration;\nimport java.util.List;\nimport java.util.Map;\nimport javax.sql.DataSource;\n"
            + "public class " + name + " {\npublic static void run(" + parameters + ") throws Exception {\n" + blocks.get(block) + "}\n" + more + "\n}\n");
    }

    @Test
    void publishesAndEnqueues() throws Exception {
        int before = jobs();
        var code = around(0, "Publishing", "Connection connection, List<Message> messages, List<NewJob> jobs, String messageId, List<Message> orders",
            "public static int booked;\nstatic void book(Connection connection) { booked++; }");
        for (String id : List.of("m1", "m1")) {
            try (Connection connection = dataSource().getConnection()) {
                connection.setAutoCommit(false);
                code.getMethod("run", Connection.class, List.class, List.class, String.class, List.class).invoke(null, connection,
                    List.of(Message.of("2"), Message.of("3")), List.of(NewJob.of("2")), id, List.of(Message.of("4")));
                connection.commit();
            }
        }
        assertEquals(1, code.getField("booked").get(null), "the message's work is done once");
        assertEquals(8, number("select count(*) from penstock.orders"));
        assertEquals(before + 7, jobs(), "four each time, of which one is a duplicate");
    }

    /** In a process, because it works until that is sent SIGTERM. */
    @Test
    void works() throws Exception {
        around(1, "Working", "DataSource pool", "static boolean night() { return false; }\nstatic boolean valid(Job job) { return !job.text().equals(\"bad\"); }\n"
            + "static void send(String text) { System.out.println(\"mail to \" + text); }\n"
            + "public static void main(String[] args) throws Exception { var pool = new org.postgresql.ds.PGSimpleDataSource(); pool.setUrl(args[0]); run(pool); }");
        Penstock.on(dataSource()).enqueueMany("emails", List.of(NewJob.of("ann"), NewJob.of("bad")));
        Path out = folder.resolve("out");
        Process worker = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-cp", folder + ":" + CLASS_PATH, "Working", database)
            .redirectErrorStream(true).redirectOutput(out.toFile()).start();
        try {
            while (jobs() > 0) {
                assertTrue(worker.isAlive(), Files.readString(out));
            }
            worker.destroy(); // SIGTERM
            worker.waitFor();
        } finally {
            worker.destroyForcibly();
        }
        assertTrue(Files.readString(out).contains("mail to ann\n"), Files.readString(out));
        assertEquals(1, number("select dead from penstock.queue_status('emails')"));
    }

    @Test
    void worksByKind() throws Exception {
        Class<?> kinds = around(2, "Kinds", "DataSource pool", "public static final java.util.concurrent.BlockingQueue<String> SENT = new java.util.concurrent.LinkedBlockingQueue<>();\n"
            + "static void send(String text) { SENT.add(text); }");
        Penstock.on(dataSource()).enqueueMany("emails", List.of(NewJob.of("ann").kind("welcome"), NewJob.of("bob").kind("reminder")));
        Thread worker = new Thread(() -> {
            try {
                kinds.getMethod("run", DataSource.class).invoke(null, dataSource());
            } catch (ReflectiveOperationException e) {
                throw new AssertionError(e);
            }
        });
        worker.start();
        try {
            var sent = (BlockingQueue<?>) kinds.getField("SENT").get(null);
            assertEquals(Set.of("welcome ann", "reminder for bob"), Set.of(sent.take(), sent.take()));
        } finally {
            worker.interrupt(); // stops the worker
            worker.join();
        }
    }

    @Test
    void worksInSpring() throws Exception {
        compiled("Mailer", "public class Mailer {\npublic static final java.util.concurrent.BlockingQueue<String> SENT = new java.util.concurrent.LinkedBlockingQueue<>();\n"
            + "public void send(String text) { SENT.add(text); }\n}\n");
        Class<?> emails = compiled("Emails", blocks.get(3));
        Class<?> mailer = emails.getClassLoader().loadClass("Mailer");
        var application = new SpringApplicationBuilder(new DefaultResourceLoader(emails.getClassLoader()), Application.class, mailer, emails).web(WebApplicationType.NONE)
            .properties(Map.of("spring.datasource.url", database, "spring.main.banner-mode", "off", "spring.flyway.enabled", "false")).run();
        try {
            var signUp = emails.getMethod("signUp", String.class);
            signUp.setAccessible(true);
            signUp.invoke(application.getBean(emails), "ann");
            assertEquals("welcome ann", ((BlockingQueue<?>) mailer.getField("SENT").get(null)).take());
        } finally {
            SpringApplication.exit(application);
        }
    }

    @Test
    void opensClaimChecks() throws Exception {
        around(4, "Opening", "Map<String, String> headers, byte[] body, S3 s3", "public interface Get { Get bucket(String name); Get key(String name); }\n"
            + "public interface Got { byte[] asByteArray(); }\npublic interface S3 { Got getObjectAsBytes(java.util.function.Consumer<Get> get); }");
    }

    @Test
    void testsOfYours() throws Exception {
        var code = around(5, "Tests", "Connection connection, DataSource dataSource, Handler handler",
            "static void placeOrder(Connection connection) {\nPenstock.on(connection).publish(\"orders\", Message.of(\"1\").key(\"ann\").topic(\"order.placed\"));\n"
                + "Penstock.on(connection).enqueue(\"emails\", NewJob.of(\"of the test\").kind(\"welcome\").key(\"ann\"));\n}");
        int before = jobs();
        int[] handled = {0};
        Handler handler = job -> {
            handled[0]++;
            return Outcome.done();
        };
        try (Connection connection = dataSource().getConnection()) {
            connection.setAutoCommit(false);
            code.getMethod("run", Connection.class, DataSource.class, Handler.class).invoke(null, connection, dataSource(), handler);
            connection.rollback();
        }
        assertEquals(1, handled[0]);
        assertEquals(before, jobs());
    }
}
