package io.penstock;

import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.function.IntFunction;

/** Does one job. It may also throw an Outcome. After any other exception the job is tried again after the queue's backoff. */
@FunctionalInterface
public interface Handler {
    /**
     * Handles a job. Its thread is interrupted when another worker may have the job or the worker stops; {@link Job#aborted} says why. After
     * the timeout of the job it is interrupted as well.
     */
    Outcome handle(Job job) throws Exception;

    /** The kinds that it has a handler for, with "" for jobs without one. Empty if it takes all kinds. */
    default Set<String> kinds() {
        return Set.of();
    }

    /**
     * The handler, whose job is a dead letter if its attempt of this number fails. A queue whose own limit is lower keeps that, and a job with
     * maxAttempts has that limit instead.
     */
    static Handler maxAttempts(int attempts, Handler handler) {
        return Limits.maxAttempts(attempts, handler);
    }

    /** The handler, whose job is tried again after the time for its attempt, unless the handler says when. The queue's backoff does not count then. */
    static Handler backoff(IntFunction<Duration> after, Handler handler) {
        return Limits.backoff(after, handler);
    }

    /**
     * The handler, whose thread is interrupted after that time. If it then throws, the attempt has failed for that reason. A job with a timeout
     * has that one instead.
     */
    static Handler timeout(Duration timeout, Handler handler) {
        return Limits.timeout(timeout, handler);
    }

    /**
     * Gives each job to the handler of its kind, and those without a kind to that of "". A job of another kind is given back for other
     * workers, at once or after up to 10 s; no attempt is spent. Once it is older than an hour it becomes a dead letter.
     */
    static Handler byKind(Map<String, Handler> handlers) {
        return byKind(handlers, Kinds.GIVE_UP);
    }

    /**
     * The same with another age from which a job without a handler is a dead letter. A worker gives it half of this time from when it first met
     * the job, so that one that was enqueued for later also meets other workers.
     */
    static Handler byKind(Map<String, Handler> handlers, Duration giveUp) {
        Kinds<Handler> kinds = new Kinds<>(handlers, giveUp);
        return new Handler() {
            @Override
            public Outcome handle(Job job) throws Exception {
                Handler handler = kinds.of(job);
                return handler == null ? kinds.unknown(job) : handler.handle(job);
            }

            @Override
            public Set<String> kinds() {
                return kinds.known();
            }
        };
    }
}
