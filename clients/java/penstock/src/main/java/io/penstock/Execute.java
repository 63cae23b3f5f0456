package io.penstock;

import java.sql.Array;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;

/** The seam to every library: runs one statement in the caller's transaction, and returns its rows. */
@FunctionalInterface
public interface Execute {
    /**
     * Values are null, String, byte[], Long, Integer, String[], byte[][], Long[] and Integer[], one for each ? of the text. Rows have
     * their columns in order, as JDBC's getObject returns them, with Java arrays for SQL arrays.
     */
    List<Object[]> execute(String text, Object... values) throws SQLException;

    /** Runs one that only reads. It may also run outside of a transaction. */
    default List<Object[]> read(String text, Object... values) throws SQLException {
        return execute(text, values);
    }

    /** Runs the writes of a test's worker, such as results of steps, in the same transaction. */
    default Execute ofWorker() {
        return this;
    }

    /** Runs statements on a connection, in its current transaction. It neither commits nor closes the connection. */
    static Execute on(Connection connection) {
        return (text, values) -> {
            try (PreparedStatement statement = connection.prepareStatement(text)) {
                for (int i = 0; i < values.length; i++) {
                    Object value = values[i];
                    String type = value instanceof byte[][] ? "bytea" : value instanceof String[] ? "text"
                        : value instanceof Long[] ? "bigint" : value instanceof Integer[] ? "int4" : null;
                    statement.setObject(i + 1, type == null ? value : connection.createArrayOf(type, (Object[]) value));
                }
                List<Object[]> rows = new ArrayList<>();
                if (!statement.execute()) {
                    return rows;
                }
                try (ResultSet result = statement.getResultSet()) {
                    int columns = result.getMetaData().getColumnCount();
                    while (result.next()) {
                        Object[] row = new Object[columns];
                        for (int i = 0; i < columns; i++) {
                            Object value = result.getObject(i + 1);
                            row[i] = value instanceof Array array ? array.getArray() : value;
                        }
                        rows.add(row);
                    }
                }
                return rows;
            }
        };
    }
}
