package io.penstock.spring.boot;

import io.penstock.Penstock;
import io.penstock.PenstockException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import javax.sql.DataSource;
import org.springframework.beans.factory.InitializingBean;
import org.springframework.boot.sql.init.dependency.AbstractBeansOfTypeDatabaseInitializerDetector;
import org.springframework.core.Ordered;
import org.springframework.dao.DataAccessException;
import org.springframework.jdbc.core.JdbcTemplate;

/** With penstock.migrate: brings the schema up to date before Flyway, JPA and others use the database, and creates what is missing in it. */
class PenstockMigration implements InitializingBean {
    /** Each creates what is missing of some names. The lock is that of create_queue and others: a second process that starts now waits. */
    private static final Map<String, String> CREATE = Map.of(
        "queue", "select n, penstock.create_queue(n, o) from unnest(?, ?) as of (n, o) where not exists (select from penstock._queue q where q.name = n)",
        "outbox", "select n, penstock.create_outbox(n) from unnest(?) n where not exists (select from penstock._outbox o where o.name = n)",
        "inbox", "select n, penstock.create_inbox(n) from unnest(?) n where not exists (select from penstock._inbox i where i.consumer = n)");
    private static final String SETTINGS = "select penstock.set_queue(?, max_attempts => cast(? as int), max_running => cast(? as int), dedup_window => cast(cast(? as text) as interval),"
        + " keep_done => cast(cast(? as text) as interval), rate => cast(? as int), per => cast(cast(? as text) as interval), burst => cast(? as int))";
    private static final String LOCK = "select pg_advisory_xact_lock('penstock._queue'::regclass::oid::int, 0)";

    private final Penstock penstock;
    private final DataSource dataSource;
    private final PenstockProperties properties;

    PenstockMigration(Penstock penstock, DataSource dataSource, PenstockProperties properties) {
        this.penstock = penstock;
        this.dataSource = dataSource;
        this.properties = properties;
    }

    @Override
    public void afterPropertiesSet() throws SQLException {
        try {
            penstock.migrate();
            create("outbox", properties.outboxes());
            create("outbox", properties.modulith().outbox() == null ? List.of() : List.of(properties.modulith().outbox()));
            create("inbox", properties.inboxes());
            create("queue", properties.queues());
        } catch (PenstockException | SQLException e) {
            throw new StartException("penstock.migrate is true: " + e.getMessage(), denied(e) ? "Let the owner of the schema make what is missing, and leave out penstock.migrate." : null, e);
        }
    }

    private static boolean denied(Exception e) {
        return "42501".equals(e instanceof SQLException sql ? sql.getSQLState() : ((PenstockException) e).sqlState());
    }

    /** Creates the queues of handlers, which are known once all beans are there, and sets limits of groups and schedules. */
    void complete(Collection<String> handled) {
        try {
            create("queue", handled);
        } catch (SQLException e) {
            throw new IllegalStateException("the queues of handlers cannot be created: " + e.getMessage(), e);
        }
        properties.queueSettings().forEach((queue, settings) -> {
            String property = "penstock.queue-settings." + queue;
            known(property, queue, handled);
            ordered(property, queue, settings);
            set(property, () -> {
                List<Object> values = new ArrayList<>(List.of(queue));
                values.addAll(Arrays.asList(settings.values()));
                new JdbcTemplate(dataSource).query(SETTINGS, row -> {}, values.toArray());
            });
        });
        properties.groups().forEach((queue, groups) -> {
            String property = "penstock.groups." + queue;
            known(property, queue, handled);
            groups.forEach((group, limits) -> set(property + "." + group, () -> Penstock.on(dataSource).queue(queue).setGroup(group, limits.limits())));
        });
        properties.schedules().forEach((name, schedule) -> {
            String property = "penstock.schedules." + name;
            known(property + ".queue", schedule.queue(), handled);
            set(property, () -> schedule.set(Penstock.on(dataSource), name));
        });
    }

    /** A name that is written wrong does not make a queue whose jobs wait for ever. */
    private void known(String property, String queue, Collection<String> handled) {
        if (new JdbcTemplate(dataSource).queryForList("select 1 from penstock._queue where name = ?", queue).isEmpty()) {
            throw new StartException(property + " names the queue \"" + queue + "\", which does not exist. Handlers here are for: " + handled,
                "Correct the name, or list it in penstock.queues if another application handles its jobs.", null);
        }
    }

    /** The order of a queue does not change. */
    private void ordered(String property, String queue, PenstockProperties.Settings settings) {
        String there = new JdbcTemplate(dataSource).queryForObject("select case when lifo then 'lifo' else 'fifo' end from penstock._queue where name = ?", String.class, queue);
        if (settings.ordering() != null && !ordering(queue).equals(there)) {
            throw new StartException(property + ".ordering is " + ordering(queue) + ", and the queue is " + there + ", which does not change",
                "Set " + there + ", or drop the queue with its jobs, and let the next start make it again: penstock queue drop " + QueueStatus.word(queue), null);
        }
    }

    private static void set(String property, Runnable call) {
        try {
            call.run();
        } catch (PenstockException | DataAccessException e) {
            String message = e instanceof DataAccessException d ? d.getMostSpecificCause().getMessage() : e.getMessage();
            throw new StartException(property + ": " + message, "Correct the property.", e);
        }
    }

    private String ordering(String queue) {
        PenstockProperties.Settings settings = properties.queueSettings().get(queue);
        return settings == null || settings.ordering() == null ? "fifo" : settings.ordering().name().toLowerCase(Locale.ROOT);
    }

    private void create(String what, Collection<String> names) throws SQLException {
        if (names.isEmpty()) {
            return;
        }
        try (Connection connection = dataSource.getConnection()) {
            boolean autoCommit = connection.getAutoCommit();
            connection.setAutoCommit(false);
            try (PreparedStatement lock = connection.prepareStatement(LOCK); PreparedStatement create = connection.prepareStatement(CREATE.get(what))) {
                lock.execute();
                create.setArray(1, connection.createArrayOf("text", names.toArray()));
                if (what.equals("queue")) {
                    create.setArray(2, connection.createArrayOf("text", names.stream().map(this::ordering).toArray()));
                }
                List<String> made = new ArrayList<>();
                try (ResultSet rows = create.executeQuery()) {
                    while (rows.next()) {
                        made.add(rows.getString(1));
                    }
                }
                connection.commit();
                made.forEach(name -> PenstockWorkers.LOG.info("penstock.migrate is true: " + what + " " + name + " is new"));
            } finally {
                connection.rollback(); // nothing, after the commit
                connection.setAutoCommit(autoCommit);
            }
        }
    }

    /** Beans that use the database wait for the migration. It comes before Flyway's, whose scripts may use Penstock. */
    static final class Detector extends AbstractBeansOfTypeDatabaseInitializerDetector {
        @Override
        protected Set<Class<?>> getDatabaseInitializerBeanTypes() {
            return Set.of(PenstockMigration.class);
        }

        @Override
        public int getOrder() {
            return Ordered.HIGHEST_PRECEDENCE;
        }
    }
}
