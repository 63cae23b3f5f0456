package io.penstock;

/** Does one job. What it throws decides, too: an Outcome as if it were returned, anything else has the job tried again after the queue's backoff. */
@FunctionalInterface
public interface Handler {
    /** Is interrupted when the job is not its own any more; {@link Job#aborted} says why. */
    Outcome handle(Job job) throws Exception;
}
