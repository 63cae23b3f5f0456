package io.penstock;

/** Does one job. It may also throw an Outcome. After any other exception the job is tried again after the queue's backoff. */
@FunctionalInterface
public interface Handler {
    /** Handles a job. Its thread is interrupted when another worker may have the job or the worker stops; {@link Job#aborted} says why. */
    Outcome handle(Job job) throws Exception;
}
