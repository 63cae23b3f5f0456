package io.penstock;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.function.Consumer;

/** A claimed job. */
public final class Job {
    /** Why a handler should stop. */
    public enum Aborted {
        /** The job may be running elsewhere. */
        LEASE_LOST,
        /** The worker stops, and the time to drain is over. */
        STOPPING,
        /** The attempt has taken as long as its timeout allows. If the handler then throws, that is the reason of its failure. */
        TIMEOUT
    }

    /** Names and values in turn, so the caller need not read JSON. */
    static final String HEADERS = "case when headers is not null then array(select unnest(array[h.key, h.value]) from jsonb_each_text(headers) h) end";
    static final String COLUMNS = "id, key, group_key, priority, attempt, cast(extract(epoch from created_at) * 1000000 as bigint), " + HEADERS + ", payload";

    private static final int MAX_STEP = 100;

    private final Object[] row;
    final String queue;
    private Map<String, String> steps; // results by name, once one is asked for
    volatile Aborted aborted; // for another reason than a timeout
    volatile Limits.Clock rang; // the one that has interrupted the handler, until its reason is told
    volatile Consumer<Consumer<Queue>> caller; // calls the queue as the worker that runs the job

    /** The columns, and the lease and its end if it has one. */
    Job(String queue, Object[] row) {
        this.queue = queue;
        this.row = row;
    }

    /** Stays with the job through all its attempts. */
    public long id() {
        return (Long) row[0];
    }

    /** The kind, or "" if it has none. */
    public String kind() {
        return row[6] == null ? "" : headers().getOrDefault(Penstock.HEADER_KIND, "");
    }

    /** The key, or null if it has none. */
    public String key() {
        return (String) row[1];
    }

    /** The group, or "" if it has none. */
    public String groupKey() {
        return (String) row[2];
    }

    public int priority() {
        return ((Number) row[3]).intValue();
    }

    /** 1 on the first attempt. */
    public int attempt() {
        return ((Number) row[4]).intValue();
    }

    /** How long an attempt may take, or null if the job does not limit it. */
    public Duration timeout() {
        String seconds = option("penstock-timeout");
        return seconds == null ? null : Duration.ofNanos(new BigDecimal(seconds).movePointRight(9).longValue());
    }

    /** After how many attempts the job becomes a dead letter, or 0 if it has none and the queue's count. */
    public int maxAttempts() {
        String limit = option(NewJob.MAX_ATTEMPTS);
        return limit == null ? 0 : Integer.parseInt(limit);
    }

    /** From then on no attempt begins, or null if the job has no deadline. */
    public Instant deadline() {
        String at = option(NewJob.DEADLINE);
        return at == null ? null : Instant.parse(at);
    }

    private String option(String header) {
        return row[6] == null ? null : headers(row[6]).get(header);
    }

    public Instant createdAt() {
        return time(row[5]);
    }

    public Map<String, String> headers() {
        Map<String, String> all = headers(row[6]);
        if (!all.containsKey(Penstock.HEADER_REPORT)) {
            return all;
        }
        Map<String, String> others = new LinkedHashMap<>(all); // they may be copied to another job, which has no report
        others.remove(Penstock.HEADER_REPORT);
        return Collections.unmodifiableMap(others);
    }

    /** What the last attempt that reported has reported, as JSON, or null. The results of its steps are in the member penstock-steps. */
    public String report() {
        return headers(row[6]).get(Penstock.HEADER_REPORT);
    }

    /**
     * Replaces the report of this job, which runs: its progress, or its result. The results of its steps stay. The next attempt has it. It is JSON
     * of up to 64 KiB, an object if the job has steps. Throws a LeaseLostException.
     */
    public void report(String json) {
        call(null, q -> q.report(lease(), json));
    }

    /** The same, in a transaction. */
    public void report(Penstock tx, String json) {
        call(tx, q -> q.report(lease(), json));
    }

    /**
     * Runs a part of the job that is not to run again once it has returned: a later attempt gets the result, which is kept with the job. An
     * exception is not kept. The name is different for each step of a job.
     *
     * If the process dies after the part has returned, and before its result is written, it runs again.
     */
    public String step(String name, Callable<String> part) throws Exception {
        return step(null, name, part);
    }

    /** The same, with a result that is written in a transaction. If that commits, the step has run. So what it writes there takes effect once. */
    public String step(Penstock tx, String name, Callable<String> part) throws Exception {
        if (Values.text("step", name, MAX_STEP) == null) {
            throw new FieldException("step", "has no name (give each step of a job a different one)");
        }
        Map<String, String> done = steps(tx);
        synchronized (done) {
            if (done.containsKey(name)) {
                return done.get(name);
            }
        }
        String result = part.call();
        try {
            call(tx, q -> q.step(lease(), name, result));
        } catch (LeaseLostException e) {
            throw e;
        } catch (PenstockException e) {
            throw new PenstockException("the result of step " + name + ": " + e.getMessage(), e.getCause());
        }
        if (tx == null) {
            synchronized (done) {
                done.put(name, result);
            }
        }
        return result;
    }

    private synchronized Map<String, String> steps(Penstock tx) {
        if (steps == null) {
            Map<String, String> kept = new HashMap<>();
            if (report() != null) {
                call(tx, q -> kept.putAll(q.steps(report())));
            }
            steps = kept;
        }
        return steps;
    }

    private void call(Penstock tx, Consumer<Queue> statement) {
        if (tx != null) {
            statement.accept(tx.queue(queue));
        } else if (caller != null) {
            caller.accept(statement);
        } else {
            throw new FieldException("job", "is not run by a worker (give the transaction)");
        }
    }

    public byte[] payload() {
        return (byte[]) row[7];
    }

    /** The payload as UTF-8. */
    public String text() {
        return new String(payload(), StandardCharsets.UTF_8);
    }

    /** The token of this claim; 0 for a job that was dequeued. */
    public long lease() {
        return row.length > 8 ? (Long) row[8] : 0;
    }

    public Instant leaseUntil() {
        return row.length > 8 ? time(row[9]) : createdAt();
    }

    /** Why the handler should stop, or null. Its thread is also interrupted. */
    public Aborted aborted() {
        return aborted == null && rang != null ? Aborted.TIMEOUT : aborted;
    }

    static Map<String, String> headers(Object namesAndValues) {
        Map<String, String> headers = new LinkedHashMap<>();
        if (namesAndValues instanceof Object[] all) {
            for (int i = 0; i < all.length; i += 2) {
                headers.put((String) all[i], (String) all[i + 1]);
            }
        }
        return Collections.unmodifiableMap(headers);
    }

    static Instant time(Object microseconds) {
        return Instant.EPOCH.plus((Long) microseconds, ChronoUnit.MICROS);
    }

    @Override
    public String toString() {
        return "job " + id() + (kind().isEmpty() ? "" : ", kind " + kind()) + ", attempt " + attempt();
    }
}
