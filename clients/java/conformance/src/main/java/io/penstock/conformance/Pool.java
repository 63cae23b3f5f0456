package io.penstock.conformance;

import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.concurrent.ConcurrentLinkedDeque;
import javax.sql.DataSource;
import org.postgresql.ds.PGSimpleDataSource;

/** Keeps closed connections for reuse. */
final class Pool {
    private final PGSimpleDataSource direct;
    private final ConcurrentLinkedDeque<Connection> free = new ConcurrentLinkedDeque<>();
    private volatile boolean closed;

    Pool(PGSimpleDataSource direct) {
        this.direct = direct;
    }

    PGSimpleDataSource direct() {
        return direct;
    }

    DataSource dataSource() {
        return (DataSource) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {DataSource.class}, (proxy, method, args) -> {
            if (!method.getName().equals("getConnection")) {
                throw new UnsupportedOperationException(method.getName());
            }
            Connection kept = free.poll();
            return pooled(kept != null ? kept : direct.getConnection());
        });
    }

    private Connection pooled(Connection connection) {
        return (Connection) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {Connection.class}, (proxy, method, args) -> {
            if (!method.getName().equals("close")) {
                try {
                    return method.invoke(connection, args);
                } catch (java.lang.reflect.InvocationTargetException e) {
                    throw e.getCause();
                }
            }
            if (closed || connection.isClosed() || !connection.getAutoCommit()) {
                connection.close();
            } else {
                free.add(connection);
            }
            return null;
        });
    }

    void close() throws SQLException {
        closed = true;
        for (Connection c = free.poll(); c != null; c = free.poll()) {
            c.close();
        }
    }
}
