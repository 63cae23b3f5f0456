package io.penstock;

import java.util.Map;

/** Does one job. It may also throw an Outcome. After any other exception the job is tried again after the queue's backoff. */
@FunctionalInterface
public interface Handler {
    /** Handles a job. Its thread is interrupted when another worker may have the job or the worker stops; {@link Job#aborted} says why. */
    Outcome handle(Job job) throws Exception;

    /**
     * Gives each job to the handler of its kind, and those without a kind to that of "". A job of another kind is given back for other
     * workers; no attempt is spent. If it is older than an hour, it becomes a dead letter.
     */
    static Handler byKind(Map<String, Handler> handlers) {
        Map<String, Handler> all = Kinds.checked(handlers);
        return job -> {
            Handler handler = all.get(job.kind());
            return handler == null ? Kinds.unknown(job) : handler.handle(job);
        };
    }
}
