package io.penstock;

import java.time.Duration;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Limits of a handler: attempts and time. */
final class Limits {
    private static final ScheduledExecutorService TIMER = timer();

    private Limits() {}

    static Handler maxAttempts(int attempts, Handler handler) {
        if (attempts < 1) {
            throw new FieldException("maxAttempts", "is " + attempts + ", expected 1 or more");
        }
        return job -> {
            if (job.attempt() < attempts) {
                return handler.handle(job);
            }
            try {
                Outcome outcome = handler.handle(job);
                return outcome != null && outcome.how == Outcome.How.RETRY ? Outcome.deadLetter(outcome.getMessage()) : outcome;
            } catch (Exception e) {
                if (job.aborted() != null || e instanceof LeaseLostException || e instanceof Outcome o && o.how != Outcome.How.RETRY) {
                    throw e;
                }
                throw e instanceof Outcome ? Outcome.deadLetter(e.getMessage()) : Outcome.deadLetter(Desk.textOf(e), e);
            }
        };
    }

    static Handler timeout(Duration timeout, Handler handler) {
        if (timeout.compareTo(Duration.ofMillis(1)) < 0) {
            throw new FieldException("timeout", "is " + timeout + ", expected a millisecond or more");
        }
        return job -> {
            Clock clock = new Clock(Thread.currentThread());
            ScheduledFuture<?> alarm = TIMER.schedule(clock::rings, Worker.nanos(timeout), TimeUnit.NANOSECONDS);
            try {
                return handler.handle(job);
            } catch (Exception e) {
                if (!clock.rang || job.aborted() != null || e instanceof Outcome) {
                    throw e;
                }
                TimeoutException over = new TimeoutException("the job ran longer than its timeout of " + timeout);
                over.initCause(e);
                throw over;
            } finally {
                alarm.cancel(false);
                clock.stops(job);
            }
        };
    }

    /** Interrupts a thread once, unless its handler has returned. */
    private static final class Clock {
        private final Thread thread;
        private boolean stopped;
        volatile boolean rang;

        Clock(Thread thread) {
            this.thread = thread;
        }

        synchronized void rings() {
            if (!stopped) {
                rang = true;
                thread.interrupt();
            }
        }

        synchronized void stops(Job job) {
            stopped = true;
            if (rang && job.aborted() == null) {
                Thread.interrupted(); // it was meant for this handler
            }
        }
    }

    private static ScheduledExecutorService timer() {
        ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1, task -> {
            Thread thread = new Thread(task, "penstock timeout");
            thread.setDaemon(true);
            return thread;
        });
        timer.setRemoveOnCancelPolicy(true);
        return timer;
    }
}
