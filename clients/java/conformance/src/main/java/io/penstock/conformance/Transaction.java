package io.penstock.conformance;

import io.penstock.Penstock;
import io.penstock.spring.SpringTransaction;
import java.sql.Connection;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import javax.sql.DataSource;
import org.jooq.SQLDialect;
import org.jooq.impl.DSL;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.SingleConnectionDataSource;
import org.springframework.transaction.support.TransactionTemplate;

/** A transaction of the caller's, made with the caller's library, in a separate thread. */
final class Transaction {
    private interface Execute {
        List<List<String>> rows(String sql) throws Exception;
    }

    private interface Kind {
        /** Runs a transaction in this thread until its end is requested, and commits it if the request says so. */
        void run(DataSource database, Transaction tx) throws Exception;
    }

    private static final class RolledBack extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    private static final Map<String, Kind> KINDS = new LinkedHashMap<>();

    static {
        KINDS.put("jdbc", (database, tx) -> {
            try (Connection connection = database.getConnection()) {
                connection.setAutoCommit(false);
                tx.begun(Penstock.on(connection), sql -> rows(connection, sql));
                connection.commit();
            }
        });
        KINDS.put("spring", (database, tx) -> {
            SingleConnectionDataSource single = new SingleConnectionDataSource(database.getConnection(), false);
            JdbcTemplate template = new JdbcTemplate(single);
            try {
                new TransactionTemplate(new DataSourceTransactionManager(single)).executeWithoutResult(status -> tx.begun(SpringTransaction.penstock(single),
                    sql -> template.query(sql, (row, n) -> {
                        List<String> texts = new ArrayList<>();
                        for (int i = 1; i <= row.getMetaData().getColumnCount(); i++) {
                            texts.add(row.getString(i));
                        }
                        return texts;
                    })));
            } finally {
                single.destroy();
            }
        });
        KINDS.put("jooq", (database, tx) -> {
            try (Connection connection = database.getConnection()) {
                DSL.using(connection, SQLDialect.POSTGRES).transaction(of -> tx.begun(
                    Penstock.on((text, values) -> of.dsl().connectionResult(c -> io.penstock.Execute.on(c).execute(text, values))),
                    sql -> {
                        List<List<String>> rows = new ArrayList<>();
                        of.dsl().fetch(sql).forEach(row -> rows.add(row.intoList().stream().map(v -> v == null ? null : v.toString()).toList()));
                        return rows;
                    }));
            }
        });
    }

    private final LinkedBlockingQueue<Runnable> tasks = new LinkedBlockingQueue<>();
    private final CompletableFuture<Void> begun = new CompletableFuture<>();
    private final CompletableFuture<Void> ended = new CompletableFuture<>();
    private Boolean commit;
    private Penstock penstock;
    private Execute execute;

    static List<String> kinds() {
        return List.copyOf(KINDS.keySet());
    }

    static Transaction begin(String kind, DataSource database) throws Exception {
        Transaction tx = new Transaction();
        thread(() -> {
            try {
                KINDS.get(kind).run(database, tx);
                tx.ended.complete(null);
            } catch (RolledBack e) {
                tx.ended.complete(null);
            } catch (Throwable e) {
                tx.begun.completeExceptionally(e);
                tx.ended.completeExceptionally(e);
            }
        });
        wait(tx.begun);
        return tx;
    }

    /** The transaction of a worker, which ends it. */
    static Transaction of(Connection connection) {
        Transaction tx = new Transaction();
        thread(() -> {
            tx.begun(Penstock.on(connection), sql -> rows(connection, sql));
            tx.ended.complete(null);
        });
        return tx;
    }

    private static void thread(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
    }

    private static List<List<String>> rows(Connection connection, String sql) throws Exception {
        List<List<String>> rows = new ArrayList<>();
        try (var statement = connection.createStatement()) {
            if (statement.execute(sql)) {
                try (var result = statement.getResultSet()) {
                    while (result.next()) {
                        List<String> row = new ArrayList<>();
                        for (int i = 1; i <= result.getMetaData().getColumnCount(); i++) {
                            row.add(result.getString(i));
                        }
                        rows.add(row);
                    }
                }
            }
        }
        return rows;
    }

    /** Runs the requests one after another until the end of the transaction is requested. */
    private void begun(Penstock penstock, Execute execute) {
        this.penstock = penstock;
        this.execute = execute;
        begun.complete(null);
        try {
            while (commit == null) {
                tasks.take().run();
            }
        } catch (InterruptedException e) {
            commit = false;
        }
        if (!commit) {
            throw new RolledBack();
        }
    }

    void execute(Runnable task) {
        tasks.add(task);
    }

    Penstock penstock() {
        return penstock;
    }

    List<List<String>> rows(String sql) throws Exception {
        return execute.rows(sql);
    }

    /** Ends it once all earlier requests have run. */
    void end(boolean how) {
        tasks.add(() -> commit = how);
    }

    /** Returns when it has ended. */
    void await() throws Exception {
        wait(ended);
    }

    private static void wait(CompletableFuture<Void> future) throws Exception {
        try {
            future.get();
        } catch (ExecutionException e) {
            throw e.getCause() instanceof Exception cause ? cause : e;
        }
    }
}
