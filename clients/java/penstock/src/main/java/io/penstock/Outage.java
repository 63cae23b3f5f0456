package io.penstock;

import java.lang.System.Logger.Level;
import java.sql.SQLException;
import java.sql.SQLTransientConnectionException;
import java.time.Duration;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Pattern;

/**
 * Tracks failing calls of the database: one line when the first fails, one when all work again. In between each other error is logged once, one line in
 * ten seconds at most: a server that was stopped may have another password now.
 */
final class Outage {
    static final String BEGINNING = "cannot begin the transactions of jobs";
    private static final Pattern AWAY = Pattern.compile("08(?!004).*|53300|57P0[1-3]"); // 08004: the driver does not get in, as without a password

    static long again = 10_000_000_000L; // ns between two lines
    private static final int MAX_ERRORS = 100; // that are remembered

    private final String queue;
    private final Set<String> failing = new HashSet<>();
    private long since;
    private long logged;
    private final Set<String> errors = new HashSet<>(); // that were logged
    private volatile RuntimeException trouble;

    Outage(String queue) {
        this.queue = queue;
    }

    /** Why calls fail at present, or null while they work. */
    RuntimeException trouble() {
        return trouble;
    }

    /** Notes that a call failed. The log's line ends with the step that helps, if there is one. */
    synchronized void failed(String what, RuntimeException e, String step) {
        trouble = e;
        long now = System.nanoTime();
        boolean begins = failing.isEmpty();
        if (begins) {
            since = now;
        }
        if (begins || errors.size() == MAX_ERRORS) {
            errors.clear();
        }
        String error = lineOf(e);
        if (begins || !errors.contains(error) && now - logged >= again) {
            logged = now;
            errors.add(error);
            Worker.LOG.log(Level.WARNING, "the worker of queue {0} {1}, and tries until it can: {2}{3}", queue, what, error, step);
        }
        failing.add(what);
    }

    /**
     * Whether the database cannot be reached for now. A wrong password, or a database that is not there, is another thing, also where a pool has
     * tried in vain: its exception has the server's as its cause.
     */
    static boolean away(Throwable e) {
        boolean late = false;
        for (int depth = 0; e != null && depth < 10; e = e.getCause(), depth++) {
            if (e instanceof SQLException sql && sql.getSQLState() != null) {
                return AWAY.matcher(sql.getSQLState()).matches();
            }
            late |= e instanceof SQLTransientConnectionException; // of a pool that has no connection
        }
        return late;
    }

    /** An error for one line of the log: the database's message, its hint and its code. */
    private static String lineOf(RuntimeException e) {
        return e instanceof PenstockException p && p.sqlState() != null ? p.getMessage().replaceAll("\\R\\s*", " ") + " (" + p.sqlState() + ")" : e.toString();
    }

    /** The outcome of a job whose transaction cannot begin: its handler was not called, so no attempt is spent. */
    Outcome unbegun(Exception e) {
        failed(BEGINNING, PenstockException.of(e), "");
        return Outcome.snooze(Duration.ofMillis(ThreadLocalRandom.current().nextLong(875, 1126)));
    }

    synchronized void worked(String what) {
        if (failing.remove(what) && failing.isEmpty()) {
            trouble = null;
            Worker.LOG.log(Level.INFO, "the worker of queue {0} goes on, {1} s later", queue, (System.nanoTime() - since) / 1_000_000_000);
        }
    }
}
