package io.penstock;

import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/** Tracks failing calls of the database: one line when the first fails, one when all work again. */
final class Outage {
    static final String BEGINNING = "cannot begin the transactions of jobs";
    private final String queue;
    private final Set<String> failing = new HashSet<>();
    private long since;
    private volatile RuntimeException trouble;

    Outage(String queue) {
        this.queue = queue;
    }

    /** Why calls fail at present, or null while they work. */
    RuntimeException trouble() {
        return trouble;
    }

    synchronized void failed(String what, RuntimeException e) {
        trouble = e;
        if (failing.isEmpty()) {
            since = System.nanoTime();
            Worker.LOG.log(Level.WARNING, "the worker of queue {0} {1}, and tries until it can: {2}", queue, what, lineOf(e));
        }
        failing.add(what);
    }

    /** An error for one line of the log: the database's message, its hint and its code. */
    private static String lineOf(RuntimeException e) {
        return e instanceof PenstockException p && p.sqlState() != null ? p.getMessage().replaceAll("\\R\\s*", " ") + " (" + p.sqlState() + ")" : e.toString();
    }

    /** The outcome of a job whose transaction cannot begin: its handler was not called, so no attempt is spent. */
    Outcome unbegun(Exception e) {
        failed(BEGINNING, PenstockException.of(e));
        return Outcome.snooze(Duration.ofMillis(ThreadLocalRandom.current().nextLong(875, 1126)));
    }

    synchronized void worked(String what) {
        if (failing.remove(what) && failing.isEmpty()) {
            trouble = null;
            Worker.LOG.log(Level.INFO, "the worker of queue {0} goes on, {1} s later", queue, (System.nanoTime() - since) / 1_000_000_000);
        }
    }
}
