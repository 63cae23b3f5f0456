package io.penstock;

import java.time.Duration;
import java.util.List;
import java.util.Objects;

/** For tests: what was published, one job now, and time that passes at once. */
public final class Testing {
    private Testing() {}

    /**
     * The last message of an outbox with that topic and key, each unless it is null, as the transaction sees it; an AssertionError that lists what
     * there is instead. For a role that may read the outbox.
     */
    public static Message requirePublished(Penstock tx, String outbox, String topic, String key) {
        List<Message> found = tx.rows("select payload, id, key, topic, " + Job.HEADERS + " from "
            + tx.quotedSchema() + "." + Values.quoted(outbox) + " order by seq desc limit 1000").stream()
            .map(row -> new Message((byte[]) row[0], (String) row[1], (String) row[2], (String) row[3], Job.headers(row[4]))).toList();
        return found.stream().filter(m -> topic == null || topic.equals(m.topic())).filter(m -> key == null || key.equals(m.key())).findFirst()
            .orElseThrow(() -> new AssertionError("nothing with topic " + topic + ", key " + key + " was published to " + outbox + ". There is: "
                + found.stream().limit(10).map(m -> "topic " + m.topic() + ", key " + m.key()).toList()));
    }

    /** A job that was run, and how: an Outcome, or what the handler threw. */
    public record Ran(Job job, Throwable outcome) {}

    /**
     * Takes the next job in the test's own transaction, where it was enqueued perhaps, and calls the handler. Nothing is committed, and nothing
     * written of how it ended. An AssertionError if there is no job.
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
     * Has that time pass for a queue at once: what is delayed, snoozed or retried until then is due, leases that end until then have ended, and
     * schedules run. In a transaction it holds others up until its end; the role has to own the schema. The server's clock stays.
     */
    public static void advance(Penstock penstock, String queue, Duration time) {
        penstock.rows("select " + penstock.quotedSchema() + ".advance_queue(cast(? as text), cast(cast(? as text) as interval))", queue, Values.interval(time));
    }
}
