package io.penstock.spring.boot;

import io.penstock.Penstock;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import javax.sql.DataSource;
import org.springframework.beans.factory.InitializingBean;
import org.springframework.boot.sql.init.dependency.AbstractBeansOfTypeDatabaseInitializerDetector;
import org.springframework.core.Ordered;

/** With penstock.migrate: brings the schema up to date before Flyway, JPA and others use the database, and creates what is missing in it. */
class PenstockMigration implements InitializingBean {
    /** Each creates what is missing of some names. The lock is that of create_queue and others: a second process that starts now waits. */
    private static final Map<String, String> CREATE = Map.of(
        "queue", "select penstock.create_queue(n) from unnest(?) n where not exists (select from penstock._queue q where q.name = n)",
        "outbox", "select penstock.create_outbox(n) from unnest(?) n where not exists (select from penstock._outbox o where o.name = n)",
        "inbox", "select penstock.create_inbox(n) from unnest(?) n where not exists (select from penstock._inbox i where i.consumer = n)");
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
        penstock.migrate();
        create("outbox", properties.outboxes());
        create("outbox", properties.modulith().outbox() == null ? List.of() : List.of(properties.modulith().outbox()));
        create("inbox", properties.inboxes());
        create("queue", properties.queues());
        create("queue", properties.groups().keySet());
        properties.groups().forEach((queue, groups) -> groups.forEach((group, limits) -> Penstock.on(dataSource).queue(queue).setGroup(group, limits.limits())));
        create("queue", properties.schedules().values().stream().map(PenstockProperties.Schedule::queue).collect(Collectors.toSet()));
        properties.schedules().forEach((name, schedule) -> schedule.set(Penstock.on(dataSource), name));
    }

    /** Creates the queues of handlers, which are known once all beans are there. */
    void createQueues(Collection<String> names) {
        try {
            create("queue", names);
        } catch (SQLException e) {
            throw new IllegalStateException("the queues of handlers cannot be created: " + e.getMessage(), e);
        }
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
                create.execute();
                connection.commit();
            } catch (SQLException e) {
                if ("42P07".equals(e.getSQLState())) { // its text names a sequence that the user has not heard of
                    throw new IllegalStateException("one of these names of a new " + what + " is taken, by an outbox, a queue or another table of the schema: " + names, e);
                }
                throw e;
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
