package io.penstock;

import java.time.Duration;
import java.util.Locale;
import java.util.Objects;

/** How a handler ends a job. Return it, or throw it. */
public final class Outcome extends RuntimeException {
    private static final long serialVersionUID = 1;

    enum How { DONE, RETRY, SNOOZE, HOLD_GROUP, DEAD_LETTER, CANCELLED, SETTLED, RELEASED }

    final How how;
    final Duration after;

    private Outcome(How how, Duration after, String reason) {
        this(how, after, reason, null);
    }

    private Outcome(How how, Duration after, String reason, Throwable cause) {
        super(reason, cause, false, false);
        if (after != null && after.isNegative()) {
            throw new FieldException("after", "is " + after + ", expected a time that is not negative");
        }
        this.how = how;
        this.after = after;
    }

    /** Whether it ends the job successfully: done and cancelled do. */
    public boolean endsJob() {
        return how == How.DONE || how == How.CANCELLED;
    }

    /** The job is done. null means the same. */
    public static Outcome done() {
        return new Outcome(How.DONE, null, null);
    }

    /** Another attempt after the queue's own backoff, as after any exception. */
    public static Outcome retry() {
        return retry(null, "retry");
    }

    /** Another attempt after that time. */
    public static Outcome retry(Duration after) {
        return retry(after, after == null ? "retry" : "retry in " + Values.shown(after));
    }

    /** Another attempt after that time, or with null after the queue's backoff. The reason is kept with the job. */
    public static Outcome retry(Duration after, String reason) {
        return new Outcome(How.RETRY, after, reason);
    }

    /** The same, after an error that the log shows. */
    static Outcome retry(Duration after, String reason, Throwable cause) {
        return new Outcome(How.RETRY, after, reason, cause);
    }

    /** The handler is called again after that time. No attempt is spent. */
    public static Outcome snooze(Duration after) {
        return new Outcome(How.SNOOZE, after, null);
    }

    /**
     * The job is given back, and its group held: no job of the group starts for that time, by any worker. For example, a server has answered 429 for one
     * customer, whose jobs are a group. No attempt is spent, and jobs that run continue. The reason may be null.
     */
    public static Outcome holdGroup(Duration time, String reason) {
        return new Outcome(How.HOLD_GROUP, Objects.requireNonNull(time, "time"), reason);
    }

    /** The job becomes a dead letter at once. */
    public static Outcome deadLetter(String reason) {
        return new Outcome(How.DEAD_LETTER, null, reason);
    }

    /** The same, after an error that the log shows. */
    static Outcome deadLetter(String reason, Throwable cause) {
        return new Outcome(How.DEAD_LETTER, null, reason, cause);
    }

    /** The job is no longer needed. It ends as if it were done, and is counted separately. */
    public static Outcome cancelled() {
        return new Outcome(How.CANCELLED, null, null);
    }

    /** The handler has ended the job itself, with {@link Queue#ack} in a separate transaction. */
    public static Outcome settled() {
        return new Outcome(How.SETTLED, null, null);
    }

    /** Two of one kind, delay and reason are equal, so that a test can compare what a handler returned. */
    @Override
    public boolean equals(Object other) {
        return other instanceof Outcome o && how == o.how && Objects.equals(after, o.after) && Objects.equals(getMessage(), o.getMessage());
    }

    @Override
    public int hashCode() {
        return Objects.hash(how, after, getMessage());
    }

    /** What it is, its delay and its reason, as in "snooze in 28800 s" and "dead letter: no such user". */
    @Override
    public String toString() {
        String name = how.name().toLowerCase(Locale.ROOT).replace('_', ' ') + (after == null ? "" : (how == How.HOLD_GROUP ? " for " : " in ") + Values.shown(after));
        return getMessage() == null || getMessage().equals(name) ? name : name + ": " + getMessage();
    }

    /** It is left to another worker for that time. */
    static Outcome released(Duration after) {
        return new Outcome(How.RELEASED, after, null);
    }
}
