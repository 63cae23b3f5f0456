package io.penstock;

import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Stream;

/** For tests: find published messages and enqueued jobs, run one or all now, let time pass at once, and clear a queue. */
public final class Testing {
    private static final int MOST = 1000;

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

    /**
     * Returns the last waiting or delayed job of a queue with the given kind and key, as the transaction sees it; those that are null match any. Claimed jobs are left out. Throws an
     * AssertionError that lists the queue's jobs if there is none. The role must be able to read the queue, as its owner can.
     */
    public static NewJob requireEnqueued(Penstock tx, String queue, String kind, String key) {
        String columns = "payload, key, group_key, priority, " + Job.HEADERS;
        String s = tx.quotedSchema();
        List<NewJob> found = tx.rows("select " + columns + ", cast(null as bigint), coalesce(id, seq) from " + s + "." + Values.quoted(queue) + " union all select " + columns
            + ", cast(extract(epoch from case when isfinite(due) then due end) * 1000000 as bigint), id from " + s + "._scheduled where queue = " + id(s)
            + " order by 7 desc limit 1000", queue).stream().map(row -> {
                Map<String, String> headers = new LinkedHashMap<>(Job.headers(row[4]));
                String its = headers.remove(Penstock.HEADER_KIND);
                return new NewJob((byte[]) row[0], its == null ? "" : its, (String) row[1], (String) row[2], ((Number) row[3]).intValue(), row[5] == null ? null : Job.time(row[5]), null,
                    headers.isEmpty() ? null : headers);
            }).toList();
        return found.stream().filter(j -> kind == null || kind.equals(j.kind())).filter(j -> key == null || key.equals(j.key())).findFirst()
            .orElseThrow(() -> new AssertionError("nothing with kind " + kind + ", key " + key + " was enqueued in " + queue + ". There is: "
                + found.stream().limit(10).map(j -> "kind " + j.kind() + ", key " + j.key()).toList()));
    }

    /** Of the queue whose name is the statement's first parameter. */
    private static String id(String schema) {
        return "(select id from " + schema + "._queue where name = cast(? as text))";
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
     * enqueued in the same transaction, or wait for a barrier whose jobs have ended in it. Nothing is committed. Throws an AssertionError if there is no job.
     */
    public static Ran runOne(Penstock tx, String queue, Handler handler) {
        return runOne(tx, queue, null, handler);
    }

    /** The same for the next job of a kind, with "" for jobs without one. The jobs before it stay, behind the others of the queue. With null it is of any kind. */
    public static Ran runOne(Penstock tx, String queue, String kind, Handler handler) {
        Ran ran = next(tx, queue, kind, handler);
        if (ran == null) {
            throw new AssertionError("there is no job " + (kind == null ? "" : "of kind \"" + kind + "\" ") + "to run in " + queue
                + ", in any group: enqueue one in this transaction, or let the delay or the pause of one pass with Testing.advance");
        }
        return ran;
    }

    /**
     * Runs the queue's jobs, of every group, until each is done or a dead letter, and returns the attempts. Time passes at once: for retries, snoozes and delayed jobs. Throws an
     * AssertionError after a thousand attempts, if a handler snoozes for ever, for example, and at once at a job whose kind has no handler. The role must own the schema.
     */
    public static List<Ran> runAll(Penstock tx, String queue, Handler handler) {
        List<Ran> all = new ArrayList<>();
        String due = "select cast(ceil(extract(epoch from min(due) - clock_timestamp()) * 1000000) as bigint) from " + tx.quotedSchema() + "._scheduled where queue = "
            + id(tx.quotedSchema()) + " and isfinite(due)";
        while (true) {
            Ran ran = next(tx, queue, null, handler);
            if (ran == null) {
                Long microseconds = (Long) tx.rows(due, queue).get(0)[0];
                if (microseconds == null) {
                    return all;
                }
                advance(tx, queue, Duration.of(Math.max(microseconds, 0) + 1_000, ChronoUnit.MICROS));
                continue;
            }
            all.add(ran);
            if (ran.outcome instanceof Outcome o && o.how == Outcome.How.RELEASED) {
                throw new AssertionError("no handler for kind \"" + ran.job.kind() + "\" in " + queue + ": there is one for " + handler.kinds());
            }
            if (all.size() > MOST) {
                throw new AssertionError("after " + MOST + " attempts " + queue + " still has jobs to run. The last was: " + ran.job + ", " + ran.outcome);
            }
        }
    }

    private static Ran next(Penstock tx, String queue, String kind, Handler handler) {
        String barriers = "set constraints " + tx.quotedSchema() + ".turn "; // opened at the commit, which a test does not reach
        tx.rows(barriers + "immediate");
        tx.rows(barriers + "deferred");
        Queue its = tx.queue(queue);
        List<Job> jobs = claim(its, "", kind);
        if (jobs.isEmpty()) {
            jobs = its.readyGroups(null, "", 1000).stream().distinct().map(group -> claim(its, group, kind)).filter(found -> !found.isEmpty()).findFirst().orElse(List.of());
        }
        if (jobs.isEmpty()) {
            return null;
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

    /** Removes a queue's jobs in every state, its dead letters and its memory of dedup keys. The role must own the schema. */
    public static void clear(Penstock tx, String queue) {
        String s = tx.quotedSchema();
        List<Long> ids = tx.rows("with q as (select id from " + s + "._queue where name = cast(? as text)) select coalesce(id, seq) from " + s + "." + Values.quoted(queue)
            + " union all select t.id from " + s + "._scheduled t join q on q.id = t.queue union all select t.id from " + s + "._lease t join q on q.id = t.queue where t.id is not null"
            + " union all select j.id from " + s + "._lease t join q on q.id = t.queue cross join lateral unnest(t.jobs) j", queue).stream().map(row -> (Long) row[0]).toList();
        tx.queue(queue).cancel(ids);
        for (String table : List.of("_dead_job", "_dedup")) {
            tx.rows("delete from " + s + "." + table + " where queue = " + id(s), queue);
        }
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
