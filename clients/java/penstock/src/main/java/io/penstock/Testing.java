package io.penstock;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;

/** For tests: find published messages, run one job now, and let time pass at once. */
public final class Testing {
    private Testing() {}

    /**
     * Returns the last message of an outbox with the given topic and key, as the transaction sees it; those that are null match any. Throws an
     * AssertionError that lists the outbox's messages if there is none. The role must be able to read the outbox.
     */
    public static Message requirePublished(Penstock tx, String outbox, String topic, String key) {
        List<Message> found = published(tx, outbox);
        return matching(found, topic, key).findFirst()
            .orElseThrow(() -> new AssertionError("nothing with topic " + topic + ", key " + key + " was published to " + outbox + ". There is: " + listed(found)));
    }

    /**
     * Throws an AssertionError if an outbox has a message with the given topic and key, as the transaction sees it; those that are null match any.
     * Messages that were committed before count too. The role must be able to read the outbox.
     */
    public static void requireNotPublished(Penstock tx, String outbox, String topic, String key) {
        List<Message> found = matching(published(tx, outbox), topic, key).toList();
        if (!found.isEmpty()) {
            throw new AssertionError("expected nothing with topic " + topic + ", key " + key + " in " + outbox + ". There is: " + listed(found));
        }
    }

    /** The last messages of an outbox, the latest first. */
    private static List<Message> published(Penstock tx, String outbox) {
        return tx.rows("select payload, id, key, topic, " + Job.HEADERS + " from "
            + tx.quotedSchema() + "." + Values.quoted(outbox) + " order by seq desc limit 1000").stream()
            .map(row -> new Message((byte[]) row[0], (String) row[1], (String) row[2], (String) row[3], Job.headers(row[4]))).toList();
    }

    private static Stream<Message> matching(List<Message> messages, String topic, String key) {
        return messages.stream().filter(m -> topic == null || topic.equals(m.topic())).filter(m -> key == null || key.equals(m.key()));
    }

    private static List<String> listed(List<Message> messages) {
        return messages.stream().limit(10).map(m -> "topic " + m.topic() + ", key " + m.key()).toList();
    }

    /** A job that was run, and how its handler ended: an Outcome, or what it threw. */
    public record Ran(Job job, Throwable outcome) {}

    /**
     * Claims the next job in the test's own transaction, calls the handler, and ends the attempt as a worker does: a job to be retried comes again after
     * advance, and a dead letter is among deadJobs. A job without a group comes first, then one of the first group that has one. The job may have been
     * enqueued in the same transaction. Nothing is committed. Throws an AssertionError if there is no job.
     */
    public static Ran runOne(Penstock tx, String queue, Handler handler) {
        return runOne(tx, queue, null, handler);
    }

    /** The same for the next job of a kind, with "" for jobs without one. The jobs before it stay, behind the others of the queue. With null it is of any kind. */
    public static Ran runOne(Penstock tx, String queue, String kind, Handler handler) {
        Queue its = tx.queue(queue);
        List<Job> jobs = claim(its, "", kind);
        if (jobs.isEmpty()) {
            jobs = its.readyGroups(null, "", 1000).stream().distinct().map(group -> claim(its, group, kind)).filter(found -> !found.isEmpty()).findFirst().orElse(List.of());
        }
        if (jobs.isEmpty()) {
            throw new AssertionError("there is no job " + (kind == null ? "" : "of kind \"" + kind + "\" ") + "to run in " + queue
                + ", in any group: enqueue one in this transaction, or let the delay or the pause of one pass with Testing.advance");
        }
        Job job = jobs.get(0);
        Queue ofWorker = tx.ofWorker().queue(queue);
        job.caller = statement -> statement.accept(ofWorker);
        Throwable how;
        try {
            how = Objects.requireNonNullElse(handler.handle(job), Outcome.done());
        } catch (Exception e) {
            how = e;
        }
        end(its, job, how);
        return new Ran(job, how instanceof Outcome && how.getCause() != null ? how.getCause() : how); // a limit of the handler made an outcome of what it threw
    }

    private static void end(Queue its, Job job, Throwable how) {
        try {
            if (how instanceof Outcome o && o.endsJob()) {
                its.ack(job.lease());
            } else if (!(how instanceof Outcome o && o.how == Outcome.How.SETTLED)) {
                Desk.Task task = new Desk.Task(job, 0);
                task.failed(how);
                task.tell(its, text -> text);
            }
        } catch (PenstockException e) {
            if (!"25P02".equals(e.sqlState())) { // otherwise what the handler threw has ended the transaction
                throw e;
            }
        }
    }

    private static List<Job> claim(Queue queue, String group, String kind) {
        List<Job> jobs = queue.claim(kind == null ? 1 : 10_000, Duration.ofMinutes(1), group, "test", null).jobs();
        List<Job> chosen = jobs.stream().filter(job -> kind == null || job.kind().equals(kind)).limit(1).toList();
        queue.release(jobs.stream().filter(job -> !chosen.contains(job)).map(Job::lease).toList(), Duration.ZERO);
        return chosen;
    }

    /**
     * Lets that time pass for a queue at once. Jobs that are delayed, snoozed or retried until then become due, leases that end until then have
     * ended, and schedules run: a schedule whose time comes until then enqueues its job, once. The server's clock does not change. In a transaction it blocks others until the transaction ends. The role must
     * own the schema.
     */
    public static void advance(Penstock penstock, String queue, Duration time) {
        penstock.rows("select " + penstock.quotedSchema() + ".advance_queue(cast(? as text), cast(cast(? as text) as interval))", queue, Values.interval(time));
    }
}
