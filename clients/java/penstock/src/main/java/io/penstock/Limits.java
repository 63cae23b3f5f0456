package io.penstock;

import java.lang.System.Logger.Level;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BiFunction;
import java.util.function.IntFunction;

/** Limits of a handler: attempts, time, and the pause between attempts. */
final class Limits {
    private static final ScheduledExecutorService TIMER = timer();
    private static final long GRACE = 1; // second, for a handler that is interrupted to end

    private Limits() {}

    static Handler maxAttempts(int attempts, Handler handler) {
        if (attempts < 1) {
            throw new FieldException("maxAttempts", "is " + attempts + ", expected 1 or more");
        }
        return failing(handler, (job, how) -> job.attempt() < attempts || job.headers().containsKey("penstock-max-attempts") ? how
            : Outcome.deadLetter(how.getMessage(), how.getCause()));
    }

    static Handler backoff(IntFunction<Duration> after, Handler handler) {
        return failing(handler, (job, how) -> how.after != null ? how : Outcome.retry(after.apply(job.attempt()), how.getMessage(), how.getCause()));
    }

    /** The handler, with another outcome of attempts that fail. */
    private static Handler failing(Handler handler, BiFunction<Job, Outcome, Outcome> change) {
        return job -> {
            try {
                Outcome outcome = handler.handle(job);
                return outcome != null && outcome.how == Outcome.How.RETRY ? change.apply(job, outcome) : outcome;
            } catch (Exception thrown) {
                Exception e = overtime(job, thrown);
                if (job.aborted != null || e instanceof LeaseLostException || e instanceof Outcome o && o.how != Outcome.How.RETRY) {
                    throw e;
                }
                Outcome how = e instanceof Outcome o ? o : Outcome.retry(null, Trace.textOf(e), e);
                Outcome changed = change.apply(job, how);
                throw changed == how ? e : changed;
            }
        };
    }

    static Handler timeout(Duration timeout, Handler handler) {
        if (timeout.compareTo(Duration.ofMillis(1)) < 0) {
            throw new FieldException("timeout", "is " + timeout + ", expected a millisecond or more");
        }
        return job -> within(job.timeout() == null ? timeout : null, handler, job);
    }

    /** Runs a handler, whose thread is interrupted after that time, unless it is null. */
    static Outcome within(Duration timeout, Handler handler, Job job) throws Exception {
        if (timeout == null) {
            return handler.handle(job);
        }
        Clock clock = new Clock(Thread.currentThread(), timeout);
        ScheduledFuture<?> alarm = TIMER.schedule(() -> clock.rings(job), Worker.nanos(timeout), TimeUnit.NANOSECONDS);
        long start = System.nanoTime();
        try {
            Outcome outcome = handler.handle(job);
            clock.returns(job, Duration.ofNanos(System.nanoTime() - start));
            return outcome;
        } catch (Exception e) {
            throw overtime(job, e);
        } finally {
            alarm.cancel(false);
            clock.stops(job);
        }
    }

    /** The timeout, if it is why a handler threw. The first that asks, the innermost of its wrappers, makes it one. */
    private static Exception overtime(Job job, Exception e) {
        Clock clock = job.rang;
        if (clock == null || job.aborted != null || e instanceof Outcome) {
            return e;
        }
        job.rang = null;
        TimeoutException over = new TimeoutException("the job ran longer than its timeout of " + Values.shown(clock.timeout));
        over.initCause(e);
        over.setStackTrace(e.getStackTrace()); // where it was interrupted
        return over;
    }

    /** Interrupts a thread once, unless its handler has returned. */
    static final class Clock {
        private final Thread thread;
        private final Duration timeout;
        private boolean stopped;
        private boolean rang;

        Clock(Thread thread, Duration timeout) {
            this.thread = thread;
            this.timeout = timeout;
        }

        synchronized void rings(Job job) {
            if (!stopped) {
                rang = true;
                job.rang = this;
                thread.interrupt();
                TIMER.schedule(() -> isIgnored(job), GRACE, TimeUnit.SECONDS);
            }
        }

        /** The handler goes on: nothing else can end its thread. */
        private synchronized void isIgnored(Job job) {
            if (!stopped) {
                Worker.LOG.log(Level.WARNING, "{0} of queue {1} runs longer than its timeout of {2}: its handler ignores the interrupt", job, job.queue, Values.shown(timeout));
            }
        }

        /** No error tells that it ran too long. */
        synchronized void returns(Job job, Duration took) {
            if (rang && job.aborted == null) {
                Worker.LOG.log(Level.WARNING, "{0} of queue {1} ran longer than its timeout of {2}: its handler ended after {3}, and its outcome counts", job, job.queue,
                    Values.shown(timeout), Values.shown(took.truncatedTo(ChronoUnit.MILLIS)));
            }
        }

        synchronized void stops(Job job) {
            stopped = true;
            if (job.rang == this) {
                job.rang = null;
            }
            if (rang && job.aborted == null) {
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
