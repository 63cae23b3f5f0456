package io.penstock;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.function.Consumer;
import javax.sql.DataSource;

/**
 * Publishes, enqueues and works. It writes in the transaction that it was made on, which it neither begins nor ends. It is cheap to
 * make. Threads may share one that was made on a DataSource.
 */
public final class Penstock {
    /** The version of the schema that this client was written for. An older one lacks functions that it calls. */
    public static final long SCHEMA_VERSION = 300;
    static final String VERSION = "0.1.0";
    /** The header that carries the kind of a job. A message that becomes a job may carry it as well. */
    public static final String HEADER_KIND = "penstock-kind";
    /** The header that carries the report of an earlier attempt. */
    static final String HEADER_REPORT = "penstock-report";

    private final Execute execute;
    private final DataSource dataSource;
    private final String schema;

    private Penstock(Execute execute, DataSource dataSource, String schema) {
        this.execute = execute;
        this.dataSource = dataSource;
        this.schema = schema;
    }

    /** Writes in the connection's transaction. Without one, in auto-commit mode, it throws an IllegalStateException, but for calls that only read. */
    public static Penstock on(Connection connection) {
        Execute statements = Execute.on(Objects.requireNonNull(connection));
        return on(new Execute() {
            @Override
            public List<Object[]> execute(String text, Object... values) throws SQLException {
                if (connection.getAutoCommit()) {
                    throw new IllegalStateException("this Connection is in auto-commit mode, and has no transaction to write in: call connection.setAutoCommit(false) before, and"
                        + " connection.commit() after; or give Penstock.on the DataSource, and each call is a separate transaction");
                }
                return statements.execute(text, values);
            }

            @Override
            public List<Object[]> read(String text, Object... values) throws SQLException {
                return statements.execute(text, values);
            }
        });
    }

    /** Writes in the transaction in which your function runs statements. */
    public static Penstock on(Execute execute) {
        return on(execute, null);
    }

    /** The same, with a pool for workers. */
    public static Penstock on(Execute execute, DataSource workers) {
        return new Penstock(Objects.requireNonNull(execute), workers, "\"penstock\"");
    }

    /** Each call is a separate transaction, on a connection in auto-commit mode. Workers take their connections from here. */
    public static Penstock on(DataSource dataSource) {
        return on((text, values) -> {
            try (Connection connection = dataSource.getConnection()) {
                if (!connection.getAutoCommit()) {
                    throw new IllegalStateException("connections of this DataSource do not commit by themselves: give Penstock.on the Connection of"
                        + " your transaction, or use io.penstock.spring.SpringTransaction");
                }
                return Execute.on(connection).execute(text, values);
            }
        }, dataSource);
    }

    /** The same with another schema than penstock. */
    public Penstock schema(String name) {
        return new Penstock(execute, dataSource, Values.quoted(name));
    }

    /** Publishes a message. It is delivered if the transaction commits, and never if it rolls back. Throws FieldException and NotFoundException. */
    public void publish(String outbox, Message message) {
        Object[] m = Values.row(Values.given("message", message));
        rows("select " + schema + ".publish_bytes(cast(? as text), cast(? as bytea), cast(? as text), cast(? as text), cast(cast(? as text) as jsonb), cast(? as text))",
            outbox, m[4], m[1], m[2], m[3], m[0]);
    }

    /** Publishes messages in the given order, with one statement. All are checked before the first is written. */
    public void publishMany(String outbox, Collection<Message> messages) {
        List<Object[]> made = Values.rows("messages", messages, Values::row);
        if (!made.isEmpty()) {
            rows("insert into " + schema + "." + Values.quoted(outbox) + " (id, key, topic, headers, payload) select * from unnest("
                + "cast(? as text[]), cast(? as text[]), cast(? as text[]), cast(cast(? as text[]) as jsonb[]), cast(? as bytea[]))",
                texts(made, 0), texts(made, 1), texts(made, 2), texts(made, 3), Values.column(made, 4, Values.BYTES, null));
        }
    }

    /** Enqueues a job. It can run if the transaction commits, and never if it rolls back. Throws FieldException and NotFoundException. */
    public Enqueued enqueue(String queue, NewJob job) {
        return enqueueMany(queue, List.of(Values.given("job", job))).get(0);
    }

    /** Enqueues jobs with one statement, and returns a result for each, in the given order. */
    public List<Enqueued> enqueueMany(String queue, Collection<NewJob> jobs) {
        List<Object[]> made = Values.rows("jobs", jobs, Values::row);
        if (made.isEmpty()) {
            return List.of();
        }
        String[] dedupKeys = texts(made, 5);
        boolean unique = made.stream().anyMatch(row -> row[6] != null && ((String) row[6]).contains(Values.HEADER_UNIQUE_KEY));
        return rows("select e.id, " + (dedupKeys == null && !unique ? "false" : "coalesce(" + schema + ".deduplicated(e.n), false)") + " from " + schema
            + ".enqueue_many_bytes(cast(? as text), cast(? as bytea[]), cast(? as text[]), cast(? as text[]), cast(? as int[]),"
            + " cast(cast(? as text[]) as timestamptz[]), cast(? as text[]), cast(cast(? as text[]) as jsonb[])) with ordinality e(id, n) order by e.n",
            queue, Values.column(made, 0, Values.BYTES, null), texts(made, 1), Values.column(made, 2, Values.TEXTS, ""),
            Values.column(made, 3, Values.INTS, 0), texts(made, 4), dedupKeys, texts(made, 6))
            .stream().map(row -> new Enqueued((Long) row[0], (Boolean) row[1])).toList();
    }

    /**
     * Makes a barrier for jobs of a queue, and returns its number, for {@link NewJob#holds} and {@link NewJob#waitsFor}. It opens, once, when it is
     * sealed and each job that holds it has ended.
     */
    public long barrier(String queue) {
        return (Long) rows("select " + schema + ".barrier(cast(? as text))", queue).get(0)[0];
    }

    /** Seals a barrier: it opens when each job that holds it has ended, at once if none does. A job that holds it may still add others. */
    public void seal(String queue, long barrier) {
        rows("select " + schema + ".seal(cast(? as text), cast(? as bigint))", queue, barrier);
    }

    /**
     * Publishes a message once these barriers of the queue are open: in the transaction that opens the last one. Until then the queue shows it as a
     * job that waits, by the id that is returned.
     *
     * @param onDead as of {@link NewJob#onDead}, null for the default
     */
    public long publishAfter(String queue, List<Long> waitsFor, String outbox, Message message, String onDead) {
        if (waitsFor.isEmpty()) {
            throw new FieldException("waitsFor", "is empty: give the barriers to wait for, or publish the message");
        }
        Object[] m = Values.row(message);
        return (Long) rows("select " + schema + ".publish_after(cast(? as text), cast(cast(? as text) as bigint[]), cast(? as text), cast(? as bytea), cast(? as text),"
            + " cast(? as text), cast(cast(? as text) as jsonb), cast(? as text), cast(? as text))", queue, "{" + Values.barriers("waitsFor", waitsFor) + "}",
            outbox, m[4], m[1], m[2], m[3], m[0], Values.onDead(onDead)).get(0)[0];
    }

    private static String[] texts(List<Object[]> rows, int column) {
        return Values.column(rows, column, Values.TEXTS, null);
    }

    /** Remembers which messages a consumer has received. */
    public interface Inbox {
        /** True if the id is new: process the message in this transaction. False if it was processed before. */
        boolean first(String messageId);
    }

    /** The inbox of a consumer. */
    public Inbox inbox(String consumer) {
        return id -> (Boolean) rows("select " + schema + ".inbox(cast(? as text), cast(? as text))", consumer, id).get(0)[0];
    }

    /** Takes messages and jobs one at a time, and writes them with one statement per outbox and queue: whenever there are 1,000, and at the end. */
    public void buffered(Consumer<Buffer> producer) {
        Buffer buffer = buffer(1_000);
        producer.accept(buffer);
        buffer.flush();
    }

    /** A buffer that writes whenever it has this many messages and jobs. Flush it before the commit. */
    public Buffer buffer(int at) {
        return new Buffer(this, at);
    }

    /** A queue, for loops of your own, and for its schedules and dead letters. */
    public Queue queue(String name) {
        return new Queue(this, name);
    }

    /** The version of the database's schema. Throws a SchemaException if this client does not support it. */
    public long check() {
        return (Long) read("select " + schema + ".check_client(cast(? as bigint))", SCHEMA_VERSION).get(0)[0];
    }

    /**
     * Makes the schema in the database, or brings it up to date, like the program's penstock migrate. The DataSource's role must own the
     * schema, or may create it. It is safe to call at each start, and from several processes at once.
     */
    public void migrate() {
        if (dataSource == null) {
            throw new IllegalStateException("migrate needs a separate transaction: Penstock.on(dataSource)");
        }
        if (!schema.equals("\"penstock\"")) {
            throw new SchemaException("this makes the schema penstock, not " + schema + " (run: penstock migrate --schema NAME)", null);
        }
        new Schema().migrate(dataSource);
    }

    /** A worker, to start and close yourself. It takes connections from the DataSource. */
    public Worker worker(String queue, Handler handler, WorkOptions options) {
        if (dataSource == null) {
            throw new IllegalStateException("a worker needs separate connections: Penstock.on(dataSource)");
        }
        return new Worker(this, dataSource, queue, handler, options);
    }

    /** Runs the handler on the jobs of a queue until the process is sent SIGTERM or SIGINT. */
    public void work(String queue, Handler handler) {
        work(queue, handler, new WorkOptions());
    }

    /** The same with options. */
    public void work(String queue, Handler handler, WorkOptions options) {
        worker(queue, handler, options).runUntilShutdown();
    }

    /** Like work, with a transaction around each handler that also ends the job: the handler's writes take effect exactly once. */
    public void workTx(String queue, TxHandler handler, WorkOptions options) {
        work(queue, inTransaction(queue, handler), options);
    }

    /** The handler of workTx. Give worker and work a pool: the handler takes a connection from it for each job. */
    public Handler inTransaction(String queue, TxHandler handler) {
        Values.given("handler", handler);
        Outage outage = new Outage(queue);
        return job -> {
            Connection connection = null;
            boolean autoCommit = true;
            try {
                connection = dataSource.getConnection();
                autoCommit = connection.getAutoCommit();
                connection.setAutoCommit(false);
            } catch (SQLException | RuntimeException e) {
                end(connection, false, autoCommit);
                return outage.unbegun(e);
            }
            outage.worked(Outage.BEGINNING);
            boolean committed = false;
            try {
                Outcome outcome = handler.handle(connection, job);
                if (outcome != null && !outcome.endsJob()) {
                    return outcome;
                }
                on(Execute.on(connection)).withSchemaOf(this).queue(queue).ack(job.lease());
                connection.commit();
                committed = true;
                return Outcome.settled();
            } finally {
                end(connection, !committed, autoCommit);
            }
        };
    }

    Penstock ofWorker() {
        return new Penstock(execute.ofWorker(), dataSource, schema);
    }

    /** Gives a connection back. What goes wrong here does not change how the job ended: without a commit the server rolls back. */
    private static void end(Connection connection, boolean rollback, boolean autoCommit) {
        try (Connection closed = connection) {
            if (rollback) {
                closed.rollback();
            }
            if (closed != null) {
                closed.setAutoCommit(autoCommit);
            }
        } catch (SQLException | RuntimeException e) {
            Worker.LOG.log(System.Logger.Level.DEBUG, "cannot give a connection back", e);
        }
    }

    Penstock withSchemaOf(Penstock other) {
        return new Penstock(execute, dataSource, other.schema);
    }

    String quotedSchema() {
        return schema;
    }

    List<Object[]> rows(String text, Object... values) {
        try {
            return execute.execute(text, values);
        } catch (SQLException | RuntimeException e) {
            throw PenstockException.of(e);
        }
    }

    List<Object[]> read(String text, Object... values) {
        try {
            return execute.read(text, values);
        } catch (SQLException | RuntimeException e) {
            throw PenstockException.of(e);
        }
    }
}
