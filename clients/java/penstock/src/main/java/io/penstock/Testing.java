package io.penstock;

import java.time.Duration;
import java.util.List;
import java.util.Objects;

/** For tests: find published messages, run one job now, and let time pass at once. */
public final class Testing {
    private Testing() {}

    /**
     * Returns the last message of an outbox with the given topic and key, as the transaction sees it; those that are null match any. Throws an
     * AssertionError that lists the outbox's messages if there is none. The role must be able to read the outbox.
     */
    public static Message requirePublished(Penstock tx, String outbox, String topic, String key) {
        List<Message> found = tx.rows("select payload, id, key, topic, " + Job.HEADERS + " from "
            + tx.quotedSchema() + "." + Values.quoted(outbox) + " order by seq desc limit 1000").stream()
            .map(row -> new Message((byte[]) row[0], (String) row[1], (String) row[2], (String) row[3], Job.headers(row[4]))).toList();
        return found.stream().filter(m -> topic == null || topic.equals(m.topic())).filter(m -> key == null || key.equals(m.key())).findFirst()
            .orElseThrow(() -> new AssertionError("nothing with topic " + topic + ", key " + key + " was published to " + outbox + ". There is: "
                + found.stream().limit(10).map(m -> "topic " + m.topic() + ", key " + m.key()).toList()));
    }

    /** A job that was run, and how it ended: an Outcome, or what the handler threw. */
    public record Ran(Job job, Throwable outcome) {}

    /**
     * Claims the next job in the test's own transaction and calls the handler. The job may have been enqueued in the same transaction. Nothing
     * is committed, and the end of the attempt is not written. Throws an AssertionError if there is no job.
     */
    public static Ran runOne(Penstock tx, String queue, Handler handler) {
        List<Job> jobs = tx.queue(queue).dequeue(1, "");
        if (jobs.isEmpty()) {
            throw new AssertionError("there is no job to run in " + queue);
        }
        try {
            return new Ran(jobs.get(0), Objects.requireNonNullElse(handler.handle(jobs.get(0)), Outcome.done()));
        } catch (Exception e) {
            return new Ran(jobs.get(0), e);
        }
    }

    /**
     * Lets that time pass for a queue at once. Jobs that are delayed, snoozed or retried until then become due, leases that end until then have
     * ended, and schedules run. The server's clock does not change. In a transaction it blocks others until the transaction ends. The role must
     * own the schema.
     */
    public static void advance(Penstock penstock, String queue, Duration time) {
        penstock.rows("select " + penstock.quotedSchema() + ".advance_queue(cast(? as text), cast(cast(? as text) as interval))", queue, Values.interval(time));
    }
}
