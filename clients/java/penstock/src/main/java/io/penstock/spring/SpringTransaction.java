package io.penstock.spring;

import io.penstock.Execute;
import io.penstock.Penstock;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import javax.sql.DataSource;
import org.springframework.jdbc.datasource.DataSourceUtils;

/**
 * Runs statements in the transaction that Spring has bound to the thread: that of JdbcTemplate, JPA, or anything else that manages the
 * DataSource's connections under {@code @Transactional}.
 */
public final class SpringTransaction implements Execute {
    private final DataSource dataSource;

    public SpringTransaction(DataSource dataSource) {
        this.dataSource = dataSource;
    }

    /** A Penstock that all beans share. Outside of a transaction, publishing and enqueueing throw an exception. */
    public static Penstock penstock(DataSource dataSource) {
        return Penstock.on(new SpringTransaction(dataSource), dataSource);
    }

    @Override
    public List<Object[]> execute(String text, Object... values) throws SQLException {
        Connection connection = DataSourceUtils.getConnection(dataSource);
        try {
            if (!DataSourceUtils.isConnectionTransactional(connection, dataSource)) {
                throw new IllegalStateException("there is no transaction of Spring's here: the caller needs @Transactional, @PenstockHandler transactional = true, or Penstock.on(dataSource)");
            }
            return Execute.on(connection).execute(text, values);
        } finally {
            DataSourceUtils.releaseConnection(connection, dataSource);
        }
    }
}
