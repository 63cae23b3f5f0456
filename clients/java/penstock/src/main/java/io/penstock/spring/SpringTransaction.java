package io.penstock.spring;

import io.penstock.Execute;
import io.penstock.Handler;
import io.penstock.Penstock;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import javax.sql.DataSource;
import org.springframework.jdbc.datasource.DataSourceUtils;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/**
 * Runs statements in the transaction that Spring has bound to the thread: that of JdbcTemplate, JPA, or anything else that manages the
 * DataSource's connections under {@code @Transactional}.
 */
public final class SpringTransaction implements Execute {
    private static final ThreadLocal<Boolean> OUTSIDE = new ThreadLocal<>(); // whether outside calls a handler

    private final DataSource dataSource;
    private final boolean always; // also where outside calls a handler

    public SpringTransaction(DataSource dataSource) {
        this(dataSource, false);
    }

    private SpringTransaction(DataSource dataSource, boolean always) {
        this.dataSource = dataSource;
        this.always = always;
    }

    /** A Penstock that all beans share. Outside of a transaction, all calls throw an exception, but for those that only read, such as findJob and status. */
    public static Penstock penstock(DataSource dataSource) {
        return Penstock.on(new SpringTransaction(dataSource), dataSource);
    }

    /**
     * For tests: calls a handler in the transaction of its thread, and lets it publish and enqueue only as a worker without one would, in a
     * transaction that the handler's own {@code @Transactional} begins. Statements of others, such as JdbcTemplate, are in the thread's transaction.
     */
    public static Handler outside(Handler handler) {
        return job -> {
            if (!TransactionSynchronizationManager.isSynchronizationActive()) {
                return handler.handle(job);
            }
            String name = TransactionSynchronizationManager.getCurrentTransactionName();
            boolean readOnly = TransactionSynchronizationManager.isCurrentTransactionReadOnly();
            Integer isolation = TransactionSynchronizationManager.getCurrentTransactionIsolationLevel();
            boolean active = TransactionSynchronizationManager.isActualTransactionActive();
            List<TransactionSynchronization> synchronizations = TransactionSynchronizationManager.getSynchronizations();
            Boolean before = OUTSIDE.get();
            TransactionSynchronizationManager.clear();
            OUTSIDE.set(true);
            try {
                return handler.handle(job);
            } finally {
                OUTSIDE.set(before);
                TransactionSynchronizationManager.initSynchronization();
                synchronizations.forEach(TransactionSynchronizationManager::registerSynchronization);
                TransactionSynchronizationManager.setCurrentTransactionName(name);
                TransactionSynchronizationManager.setCurrentTransactionReadOnly(readOnly);
                TransactionSynchronizationManager.setCurrentTransactionIsolationLevel(isolation);
                TransactionSynchronizationManager.setActualTransactionActive(active);
            }
        };
    }

    @Override
    public Execute ofWorker() {
        return new SpringTransaction(dataSource, true);
    }

    @Override
    public List<Object[]> execute(String text, Object... values) throws SQLException {
        Connection connection = DataSourceUtils.getConnection(dataSource);
        try {
            boolean hidden = OUTSIDE.get() != null && !always && !TransactionSynchronizationManager.isActualTransactionActive();
            if (hidden || !DataSourceUtils.isConnectionTransactional(connection, dataSource)) {
                throw new IllegalStateException("there is no transaction of Spring's here: the caller needs @Transactional, @PenstockHandler transactional = true, or Penstock.on(dataSource)");
            }
            return Execute.on(connection).execute(text, values);
        } finally {
            DataSourceUtils.releaseConnection(connection, dataSource);
        }
    }

    @Override
    public List<Object[]> read(String text, Object... values) throws SQLException {
        Connection connection = DataSourceUtils.getConnection(dataSource);
        try {
            return Execute.on(connection).execute(text, values);
        } finally {
            DataSourceUtils.releaseConnection(connection, dataSource);
        }
    }
}
