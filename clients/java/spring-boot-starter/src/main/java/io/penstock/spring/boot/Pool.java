package io.penstock.spring.boot;

import java.sql.SQLException;
import java.time.Duration;
import javax.sql.DataSource;

/** The pool of the workers' connections. Of HikariCP, which the application may lack, its size and its timeout are known. */
record Pool(Integer most, Duration timeout) {
    private static final int PER_WORKER = 3;
    private static final Duration USUAL = Duration.ofSeconds(30);

    static Pool of(DataSource dataSource) {
        try {
            Class<?> hikari = Class.forName("com.zaxxer.hikari.HikariDataSource", false, Pool.class.getClassLoader());
            if (dataSource.isWrapperFor(hikari)) {
                Object pool = dataSource.unwrap(hikari);
                Duration timeout = Duration.ofMillis((Long) hikari.getMethod("getConnectionTimeout").invoke(pool));
                return new Pool((Integer) hikari.getMethod("getMaximumPoolSize").invoke(pool), timeout.compareTo(USUAL) < 0 ? timeout : USUAL);
            }
        } catch (ReflectiveOperationException | SQLException | RuntimeException | LinkageError e) { // another pool, or one that does not tell
        }
        return new Pool(null, USUAL);
    }

    /** Warns if the workers can take all connections, so that workers and requests wait for each other. */
    void warn(int workers) {
        int needed = PER_WORKER * workers + 1;
        if (workers > 0 && most != null && most < needed) {
            PenstockWorkers.LOG.warn(workers + (workers == 1 ? " worker takes up to " : " workers take up to ") + (needed - 1) + " connections, and the pool has "
                + most + ": set spring.datasource.hikari.maximum-pool-size to " + needed
                + " or more, and add one for each transactional handler and each request that run at the same time");
        }
    }
}
