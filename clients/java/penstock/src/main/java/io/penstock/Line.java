package io.penstock;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.function.Function;
import javax.sql.DataSource;
import org.postgresql.PGConnection;

/** A connection that is opened when it is first needed, and again after an error. */
final class Line {
    private static final int CALL_TIMEOUT_MS = 30_000; // ends a call that hangs

    private final Penstock penstock;
    private final DataSource dataSource;
    private final String queue;
    private Connection connection;
    private boolean autoCommit;

    Line(Penstock penstock, DataSource dataSource, String queue) {
        this.penstock = penstock;
        this.dataSource = dataSource;
        this.queue = queue;
    }

    <T> T call(Function<Queue, T> statement) {
        return callPenstock(p -> statement.apply(p.queue(queue)));
    }

    <T> T callPenstock(Function<Penstock, T> statement) {
        try {
            if (connection == null) {
                connection = dataSource.getConnection();
                autoCommit = connection.getAutoCommit();
                connection.setAutoCommit(true);
                connection.setNetworkTimeout(Runnable::run, CALL_TIMEOUT_MS);
                prepareNothingBehindAPooler();
            }
            return statement.apply(Penstock.on(Execute.on(connection)).withSchemaOf(penstock));
        } catch (SQLException | RuntimeException e) {
            close();
            throw PenstockException.of(e);
        }
    }

    /**
     * Behind a pooler, each statement may run on another connection of the database. A statement prepared before may be missing there, or
     * belong to another client.
     */
    private void prepareNothingBehindAPooler() throws SQLException {
        if (connection.isWrapperFor(PGConnection.class)) {
            PGConnection of = connection.unwrap(PGConnection.class);
            Object pid = Execute.on(connection).execute("select pg_backend_pid()").get(0)[0];
            if (!pid.equals(of.getBackendPID())) {
                of.setPrepareThreshold(0);
            }
        }
    }

    void close() {
        try (Connection closed = connection) {
            connection = null;
            if (closed != null) {
                closed.setNetworkTimeout(Runnable::run, 0);
                closed.setAutoCommit(autoCommit);
            }
        } catch (SQLException e) { // it is no longer usable
        }
    }
}
