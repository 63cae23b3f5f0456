package io.penstock;

import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** The statements of workers, for your own loops and for transactions that end jobs, and of those who look after a queue: its state, schedules, dead letters and groups. */
public final class Queue {
    static final int MAX_REASON = 1024;
    private final Penstock penstock;
    private final String name;

    Queue(Penstock penstock, String name) {
        this.penstock = penstock;
        this.name = name;
    }

    /** The jobs of a claim, those of the given leases that were still held and are ended now, and whether a limit of running jobs is close. */
    public record Claimed(List<Job> jobs, List<Long> acked, boolean full) {}

    /**
     * Claims jobs, and ends those of acks in the same call. Pass an empty list as acks if all jobs will end many at a time, or null if
     * each will end alone.
     */
    public Claimed claim(int n, Duration lease, String groupKey, String worker, Collection<Long> acks) {
        return claimGroups(Map.of(groupKey, n), lease, worker, acks);
    }

    /** Claims a number of jobs of each of these groups, and ends those of acks, with one call. */
    public Claimed claimGroups(Map<String, Integer> shares, Duration lease, String worker, Collection<Long> acks) {
        shares.keySet().forEach(group -> Values.text("groupKey", group, 256));
        Values.text("worker", worker, 256);
        String schema = penstock.quotedSchema();
        List<Object> values = new ArrayList<>();
        String call;
        if (shares.size() > 1) {
            call = "unnest(cast(? as int[]), cast(? as text[])) with ordinality g(n, in_group, i) cross join lateral " + schema
                + ".ack_claim(cast(? as text), case when g.i = 1 then cast(? as bigint[]) else '{}' end, g.n, cast(cast(? as text) as interval), g.in_group, cast(? as text))";
            values.addAll(List.of(shares.values().toArray(Integer[]::new), shares.keySet().toArray(String[]::new), name,
                acks == null ? new Long[0] : acks.toArray(Long[]::new), Values.interval(lease), worker));
        } else {
            call = schema + (acks == null ? ".claim(cast(? as text)" : ".ack_claim(cast(? as text), cast(? as bigint[])")
                + ", cast(? as int), cast(cast(? as text) as interval), cast(? as text), cast(? as text))";
            values.add(name);
            if (acks != null) {
                values.add(acks.toArray(Long[]::new));
            }
            var share = shares.entrySet().iterator().next();
            values.addAll(List.of(share.getValue(), Values.interval(lease), share.getKey(), worker));
        }
        List<Job> jobs = new ArrayList<>();
        List<Long> acked = new ArrayList<>();
        for (Object[] row : penstock.rows("select " + Job.COLUMNS + ", lease, cast(extract(epoch from lease_until) * 1000000 as bigint) from " + call, values.toArray())) {
            if (row[0] != null) {
                jobs.add(new Job(name, row));
            } else {
                acked.add((Long) row[8]);
            }
        }
        boolean full = acked.removeIf(held -> held == 0);
        return new Claimed(jobs, acked, full);
    }

    /**
     * The groups that have jobs to claim, of some or with null of all: up to most, those behind one first. Each is there as often as it
     * weighs.
     */
    public List<String> readyGroups(Collection<String> groups, String behind, int most) {
        return call("select *", "ready_groups", "text[], text, int", groups == null ? null : groups.toArray(String[]::new), behind, most).stream().map(row -> (String) row[0]).toList();
    }

    /** Takes jobs within the caller's transaction. They are removed by its commit, and come back after its rollback. They have no lease. */
    public List<Job> dequeue(int n, String groupKey) {
        return call("select " + Job.COLUMNS, "dequeue", "int, text", n, groupKey).stream().map(row -> new Job(name, row)).toList();
    }

    /** Ends jobs that are done. Returns the leases that were held, as extend and release do. */
    public List<Long> ackMany(Collection<Long> leases) {
        return held("ack_many", leases, "bigint[]");
    }

    /** Ends a job that is done, in a transaction. Throws a LeaseLostException if its lease is lost. */
    public void ack(long lease) {
        call("select", "ack", "bigint", lease);
    }

    /** Makes leases end this long from now. */
    public List<Long> extend(Collection<Long> leases, Duration by) {
        return held("extend_many", leases, "bigint[], interval", Values.interval(by));
    }

    /** Gives jobs back, to run after that time. No attempt is spent. */
    public List<Long> release(Collection<Long> leases, Duration after) {
        return held("release_many", leases, "bigint[], interval", Values.interval(after));
    }

    /** Runs a job again after that time, or with null after the queue's backoff. Returns false if it is a dead letter now. */
    public boolean retry(long lease, Duration after, String error) {
        return (Boolean) call("select", "retry", "bigint, interval, text", lease, after == null ? null : Values.interval(after), Values.storable(error)).get(0)[0];
    }

    /** Makes a job a dead letter. */
    public void deadLetter(long lease, String error) {
        call("select", "dead_letter", "bigint, text", lease, Values.storable(error));
    }

    /** Replaces the report of a job that runs, but for the results of its steps. It is JSON. Throws a LeaseLostException. */
    public void report(long lease, String json) {
        call("select", "report", "bigint, jsonb", lease, json);
    }

    /** Adds the result of a step to the report of a job that runs. */
    void step(long lease, String step, String result) {
        penstock.rows("select " + penstock.quotedSchema() + ".report(cast(? as text), cast(? as bigint), jsonb_build_object('penstock-steps', jsonb_build_object(cast(? as text), cast(? as text))))",
            name, lease, step, result);
    }

    /** The results of steps in a report. */
    Map<String, String> steps(String report) {
        Map<String, String> results = new HashMap<>();
        for (Object[] row : penstock.rows("select s.key, s.value from jsonb_each_text(cast(cast(? as text) as jsonb) -> 'penstock-steps') s", report)) {
            results.put((String) row[0], (String) row[1]);
        }
        return results;
    }

    /** Says that a worker lives: a report for lease 0 stands for the worker itself. */
    void heartbeat(String json) {
        penstock.rows("select " + penstock.quotedSchema() + ".report(cast(? as text), 0, cast(cast(? as text) as jsonb))", name, json);
    }

    /**
     * Makes or changes a periodic job, and returns when it runs next. cron has five fields, as in "30 4 * * 1-5", in UTC or in a zone that comes first:
     * "TZ=Europe/Berlin 30 4 * * *". The job's notBefore does not count. A paused schedule stays paused. As all calls about schedules, it needs the
     * role that owns the schema.
     */
    public Instant schedule(String schedule, String cron, NewJob job) {
        return schedule(schedule, cron, job, false);
    }

    /** The same. With skipOverlap no job is enqueued while the last one of the schedule has not ended. */
    public Instant schedule(String schedule, String cron, NewJob job, boolean skipOverlap) {
        Object[] j = Values.row(job.notBefore(null));
        return Job.time(penstock.rows("select cast(extract(epoch from s) * 1000000 as bigint) from " + penstock.quotedSchema() + ".schedule_bytes(cast(? as text), cast(? as text),"
            + " cast(? as text), cast(? as bytea), key => cast(? as text), group_key => cast(? as text), priority => cast(? as int), headers => cast(cast(? as text) as jsonb),"
            + " dedup_key => cast(? as text), skip_overlap => cast(? as boolean)) s", name, schedule, cron, j[0], j[1], j[2], j[3], j[6], j[5], skipOverlap).get(0)[0]);
    }

    /** Ends a periodic job. Jobs that it has enqueued stay. Throws a NotFoundException if there is none of the name, as the next three do. */
    public void unschedule(String schedule) {
        call("select", "unschedule", "text", schedule);
    }

    /** Pauses a periodic job: none is enqueued until resumeSchedule. */
    public void pauseSchedule(String schedule) {
        call("select", "pause_schedule", "text", schedule);
    }

    /** Ends the pause, and returns when the schedule runs next. No job makes up for times that have passed. */
    public Instant resumeSchedule(String schedule) {
        return Job.time(call("select cast(extract(epoch from resume_schedule) * 1000000 as bigint)", "resume_schedule", "text", schedule).get(0)[0]);
    }

    /** Enqueues the job of a schedule now, also while that is paused or its last job has not ended. */
    public Enqueued runSchedule(String schedule) {
        Object[] row = call("select run_schedule, coalesce(" + penstock.quotedSchema() + ".deduplicated(), false)", "run_schedule", "text", schedule).get(0);
        return new Enqueued((Long) row[0], (Boolean) row[1]);
    }

    /** The periodic jobs, by name. */
    public List<Schedule> schedules() {
        return read("name, cron, cast(extract(epoch from next) * 1000000 as bigint), paused, skip_overlap, last_job, kind, key, group_key, priority, dedup_key, " + Job.HEADERS
            + ", payload", "schedules", "").stream().map(r -> new Schedule((String) r[0], (String) r[1], Job.time(r[2]), (Boolean) r[3], (Boolean) r[4], (Long) r[5], (String) r[6],
                (String) r[7], (String) r[8], ((Number) r[9]).intValue(), (String) r[10], Job.headers(r[11]), (byte[]) r[12])).toList();
    }

    /** Makes the queue: "fifo", or "lifo", which begins with the last job. Throws an exception with the code 42P07 if it exists. It needs the role that owns the schema. */
    public void create(String ordering) {
        call("select", "create_queue", "text", ordering);
    }

    /** Counts the queue's jobs. It reads the queue, and needs grant_operator. */
    public QueueStatus status() {
        Object[] r = read("ready, running, delayed, waiting, dead, cast(extract(epoch from oldest) * 1000000 as bigint), expired", "queue_status", "").get(0);
        return new QueueStatus((Long) r[0], (Long) r[1], (Long) r[2], (Long) r[3], (Long) r[4], Duration.of((Long) r[5], ChronoUnit.MICROS), (Long) r[6]);
    }

    /** Cancels jobs, in any state, and returns how many there were. A running one loses its lease. It needs grant_operator, as pause and resume do. */
    public int cancel(Collection<Long> ids) {
        return ((Number) call("select", "cancel", "bigint[]", (Object) ids.toArray(Long[]::new)).get(0)[0]).intValue();
    }

    /** Pauses the queue: no job starts until resume, and those that run continue. */
    public void pause() {
        call("select", "pause_queue", "");
    }

    /** Ends the pause. */
    public void resume() {
        call("select", "resume_queue", "");
    }

    /** Dead letters by id: up to most, behind the id of one (0: from the first). */
    public List<DeadJob> deadJobs(int most, long after) {
        return read("id, key, group_key, priority, attempt, cast(extract(epoch from created_at) * 1000000 as bigint), cast(extract(epoch from died_at) * 1000000 as bigint), "
            + Job.HEADERS + ", payload, error, " + DeadJob.FAILURES, "dead_jobs", "int, bigint", most, after).stream().map(r -> {
                Map<String, String> headers = Job.headers(r[7]);
                return new DeadJob((Long) r[0], headers.getOrDefault(Penstock.HEADER_KIND, ""), (String) r[1], (String) r[2], ((Number) r[3]).intValue(), ((Number) r[4]).intValue(),
                    Job.time(r[5]), Job.time(r[6]), headers, (byte[]) r[8], (String) r[9], DeadJob.failures(r[10]));
            }).toList();
    }

    /**
     * Where a job is, and its report. Empty: it has ended and is not kept, or there was none. It is for one job that a person looks at: it reads all
     * leases of the queue. grant_enqueuer, grant_worker and grant_operator allow it.
     */
    public Optional<FoundJob> findJob(long id) {
        String at = "cast(extract(epoch from %s) * 1000000 as bigint)";
        return read("id, state, kind, key, group_key, priority, attempt, " + at.formatted("created_at") + ", " + at.formatted("claimed_at") + ", " + at.formatted("until") + ", "
            + at.formatted("ended_at") + ", worker, error, cast(report as text)", "find_job", "bigint", id).stream().findFirst().map(r -> new FoundJob((Long) r[0], (String) r[1], (String) r[2],
                (String) r[3], (String) r[4], ((Number) r[5]).intValue(), ((Number) r[6]).intValue(), Job.time(r[7]), r[8] == null ? null : Job.time(r[8]), r[9] == null ? null : Job.time(r[9]),
                r[10] == null ? null : Job.time(r[10]), (String) r[11], (String) r[12], (String) r[13]));
    }

    /** Puts dead letters back at the end of the queue, with one more attempt at least. Returns how many there were. */
    public int retryDeadJobs(Collection<Long> ids) {
        return ((Number) call("select", "retry_dead_jobs", "bigint[]", (Object) ids.toArray(Long[]::new)).get(0)[0]).intValue();
    }

    /** Removes dead letters permanently. Returns how many there were. */
    public int discardDeadJobs(Collection<Long> ids) {
        return ((Number) call("select", "discard_dead_jobs", "bigint[]", (Object) ids.toArray(Long[]::new)).get(0)[0]).intValue();
    }

    /**
     * Replaces the policy of a group, or with "*" that of each group without one. For example, {@code setGroup("shop-17", new GroupLimits().maxRunning(5))}.
     * A policy without limits is deleted. It needs grant_operator, as groupPolicies does.
     */
    public void setGroup(String groupKey, GroupLimits limits) {
        call("select", "set_group", "text, int, int, interval, int, int", Values.textOrEmpty("groupKey", groupKey, 256), limits.maxRunning, limits.rate,
            limits.per == null ? null : Values.interval(limits.per), limits.burst, limits.weight);
    }

    /**
     * Lets no job of a group start for that time from now; jobs that run continue. It does not shorten an earlier hold; zero ends it. The reason may be
     * null. It needs grant_worker or grant_operator.
     */
    public void holdGroup(String groupKey, Duration time, String reason) {
        if (time.isNegative()) {
            throw new FieldException("time", "is " + time + ", expected a time that is not negative");
        }
        call("select", "hold_group", "text, interval, text", Values.textOrEmpty("groupKey", groupKey, 256), Values.interval(time), Values.text("reason", reason, MAX_REASON));
    }

    /** The groups that have a policy or are held, by name: up to most, behind the name of one ("": from the first). */
    public List<GroupPolicy> groupPolicies(int most, String after) {
        return read("group_key, max_running, rate, cast(extract(epoch from per) * 1000000 as bigint), burst, weight, tokens,"
            + " cast(extract(epoch from held_until) * 1000000 as bigint), reason", "group_policies", "text, int", after, most).stream()
            .map(r -> new GroupPolicy((String) r[0], (Integer) r[1], (Integer) r[2], r[3] == null ? null : Duration.of((Long) r[3], ChronoUnit.MICROS), (Integer) r[4],
                (Integer) r[5], (Integer) r[6], r[7] == null ? null : Job.time(r[7]), (String) r[8])).toList();
    }

    /** Does the queue's maintenance. Call it about twice a second while a worker runs. */
    public void maintain() {
        call("select", "maintain_queue", "");
    }

    private List<Long> held(String function, Collection<Long> leases, String types, Object... more) {
        if (leases.isEmpty()) {
            return List.of();
        }
        List<Object> values = new ArrayList<>(Arrays.asList(more));
        values.add(0, leases.toArray(Long[]::new));
        return call("select *", function, types, values.toArray()).stream().map(row -> (Long) row[0]).toList();
    }

    /** Reads columns of what a function returns. */
    private List<Object[]> read(String columns, String function, String types, Object... more) {
        return penstock.read(statement("select " + columns + " from ", function, types), values(more));
    }

    private List<Object[]> call(String select, String function, String types, Object... more) {
        return penstock.rows(statement(select.equals("select") ? "select " : select + " from ", function, types), values(more));
    }

    private String statement(String before, String function, String types) {
        StringBuilder text = new StringBuilder(before).append(penstock.quotedSchema()).append('.').append(function).append("(cast(? as text)");
        for (String type : types.isEmpty() ? new String[0] : types.split(", ")) {
            text.append(type.equals("interval") || type.equals("jsonb") ? ", cast(cast(? as text) as " + type + ")" : ", cast(? as " + type + ")");
        }
        return text.append(')').toString();
    }

    private Object[] values(Object... more) {
        List<Object> values = new ArrayList<>(Arrays.asList(more));
        values.add(0, name);
        return values.toArray();
    }
}
