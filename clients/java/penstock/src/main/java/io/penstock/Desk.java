package io.penstock;

import io.penstock.Outcome.How;
import io.penstock.WorkOptions.End;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.EnumMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;

/** The state of a worker's jobs: claimed, begun, done, written. It does no I/O and starts no threads. Its callers hold the worker's lock. */
final class Desk {
    static final long MS = 1_000_000;
    private static final long ACK_EVERY = 20 * MS; // how long the end of a job waits for a claim to carry it, or for others
    private static final long POLL_MIN = 2 * MS;
    private static final long POLL_MAX = 50 * MS;
    private static final long YIELDS_FOR = POLL_MAX * 5 / 4; // how long it claims nothing once it has given a job back for another worker
    private static final int MAX_ACKS = 10_000;
    private static final int MAX_UNHANDLED = 10; // kinds without a handler that heartbeats name; it remembers ten times as many

    static final class Task {
        final Job job;
        long until; // when the lease ends, or earlier, by this machine's clock
        boolean begun;
        boolean waited; // it was queued when leases were extended
        boolean ended; // the handler has returned
        boolean lost;
        boolean gone; // it was lost before its lease ended: somebody has cancelled the job
        boolean left; // no thread waits for the handler any more
        Thread thread; // while the handler runs
        long done;
        End end = End.DONE; // once it is to be acked
        Throwable how; // once it is not acked
        private String reason;
        private String trace = ""; // what is kept with the job behind the reason
        private Throwable thrown; // for the log, if it is not an outcome

        Task(Job job, long until) {
            this.job = job;
            this.until = until;
        }

        void abort(Job.Aborted cause) {
            if (job.aborted == null) {
                job.aborted = cause;
                if (thread != null) {
                    thread.interrupt();
                }
            }
        }

        /** Notes the reason of the failure. */
        void failed(Throwable how) {
            this.how = how;
            Throwable error = how instanceof Outcome ? how.getCause() : how;
            reason = how instanceof Outcome ? how.getMessage() : Trace.textOf(how);
            try {
                String.valueOf(error);
                trace = error == null ? "" : Trace.behind(error);
                thrown = error;
            } catch (Throwable e) { // the log could not read it either
                thrown = null;
            }
        }

        String reason() {
            return reason;
        }

        /** What is kept with the job. */
        String kept() {
            return reason == null ? trace : reason + trace;
        }

        /** For the log, the time that the handler chose, unless the reason is that. */
        String next(End end) {
            return end == End.FAILED && how instanceof Outcome o && o.after != null && !o.toString().equals(reason) ? "; retry in " + Values.shown(o.after) : "";
        }

        /** Whether it holds its group. One of the name *, which stands for all, cannot be held: then the job waits alone. */
        boolean holds() {
            return how instanceof Outcome o && o.how == How.HOLD_GROUP && o.after.compareTo(Duration.ZERO) > 0 && !job.groupKey().equals("*");
        }

        /** Writes the end of an attempt that is not done. */
        End tell(Queue q, UnaryOperator<String> storable) {
            How outcome = how instanceof Outcome o ? o.how : null;
            Duration after = how instanceof Outcome o ? o.after : null;
            if (outcome == How.DEAD_LETTER) {
                q.deadLetter(job.lease(), storable.apply(kept()));
                return End.DEAD;
            }
            if (holds()) {
                q.holdGroup(job.groupKey(), after, Values.storable(reason == null ? null : storable.apply(reason), Queue.MAX_REASON));
                return q.release(List.of(job.lease()), Duration.ZERO).isEmpty() ? End.LOST : End.SNOOZED;
            }
            boolean snoozed = outcome == How.SNOOZE || outcome == How.HOLD_GROUP;
            boolean interrupted = outcome == null && job.aborted != null; // it is not the job's fault
            if (snoozed || outcome == How.RELEASED || interrupted) {
                boolean gone = q.release(List.of(job.lease()), after == null ? Duration.ZERO : after).isEmpty();
                return gone ? End.LOST : snoozed ? End.SNOOZED : End.RELEASED;
            }
            return q.retry(job.lease(), after, storable.apply(kept())) ? End.FAILED : End.DEAD;
        }
    }

    enum Action { CLAIM, ACK, FAIL, WAIT, END }

    /** What to do now, how many jobs to claim, or how long to wait. */
    record Due(Action action, int n, long pause) {}

    private final String queue;
    private final WorkOptions o;
    final Turns turns;
    private final long lease;
    final Map<Long, Task> held = new LinkedHashMap<>(); // by lease, from the claim until the end is written
    final Deque<Task> failures = new ArrayDeque<>();
    private final Deque<Task> queued = new ArrayDeque<>(); // claimed, not begun
    private List<Task> acks = new ArrayList<>(); // done, not written, the oldest first
    private int writing; // acks that a running call has taken
    private int busy; // handlers that run
    private double pace; // how long a handler takes, about; 0 is not known
    private long pause = POLL_MIN;
    private long nextClaim = System.nanoTime();
    private long yields = nextClaim; // until then it leaves jobs to other workers
    private boolean settles; // handlers end their jobs in their own transactions
    private boolean keySettled; // one of these jobs since the last claim had a key
    private boolean full; // a limit of running jobs left hardly room at the last claim
    private boolean stopping;
    private final Map<End, Long> ends = new EnumMap<>(End.class); // how many attempts ended so
    private final Instant started = Instant.now();
    private Instant claimedAt;
    private final Set<String> unhandled = new TreeSet<>(); // kinds of jobs that it has met and has no handler for

    Desk(String queue, WorkOptions options) {
        this.queue = queue;
        this.o = options;
        this.turns = new Turns(options.groups);
        this.lease = Worker.nanos(options.lease);
    }

    Due due() {
        long now = System.nanoTime();
        if (!failures.isEmpty()) {
            return new Due(Action.FAIL, 0, 0);
        }
        int n = wanted();
        if (n > 0 && now - nextClaim >= 0) {
            return new Due(Action.CLAIM, n, 0);
        }
        if (!acks.isEmpty() && (stopping || acks.size() >= o.batch || now - acks.get(0).done >= ACK_EVERY)) {
            return new Due(Action.ACK, 0, 0);
        }
        if (stopping && held.isEmpty()) {
            return new Due(Action.END, 0, 0);
        }
        long wait = n > 0 ? nextClaim - now : 1_000 * MS;
        return new Due(Action.WAIT, 0, acks.isEmpty() ? wait : Math.min(wait, acks.get(0).done + ACK_EVERY - now));
    }

    /** How many jobs to claim now: one for each free handler, and some ahead for the time until the next claim. Under a limit these would take places of others. */
    int wanted() {
        if (stopping) {
            return 0;
        }
        int ahead = pace == 0 || full ? 0 : (int) Math.min(o.batch, o.concurrency * (Math.min(100 * MS, lease / 10) / pace));
        if (queued.size() > ahead / 2 || acks.size() + writing >= 4 * o.batch) { // if the acks do not keep up, no more is claimed
            return 0;
        }
        return Math.max(0, Math.min(o.batch, o.concurrency - busy + ahead - queued.size()));
    }

    // Claims and acks

    List<Task> takeAcks() {
        int n = Math.min(acks.size(), MAX_ACKS);
        List<Task> tasks = List.copyOf(acks.subList(0, n));
        acks = new ArrayList<>(acks.subList(n, acks.size()));
        writing += n;
        return tasks;
    }

    /**
     * The leases that a claim acks. Jobs that may share a lease are acked faster together, but acks of them in several transactions wait
     * for each other. In that case it is null.
     */
    List<Long> carried(List<Task> tasks) {
        return tasks.isEmpty() && settles ? null : leases(tasks);
    }

    /** Whether one claim should be for several groups: under limits each has few jobs to give. */
    boolean several() {
        return full && !settles;
    }

    void returnAcks(List<Task> tasks) {
        writing -= tasks.size();
        acks.addAll(0, tasks);
    }

    void acked(List<Task> tasks, List<Long> leases) {
        writing -= tasks.size();
        Set<Long> kept = new HashSet<>(leases);
        for (Task t : tasks) {
            finish(t, kept.contains(t.job.lease()) ? t.end : End.LOST);
        }
    }

    void claimed(Queue.Claimed got, Map<String, Integer> shares, long until) {
        List<Job> jobs = got.jobs();
        full = shares.isEmpty() ? full : got.full();
        keySettled = false;
        for (Job job : jobs) {
            Task task = new Task(job, until);
            held.put(job.lease(), task);
            queued.add(task);
        }
        long now = System.nanoTime();
        if (!jobs.isEmpty()) {
            pause = POLL_MIN;
            claimedAt = Instant.now();
        }
        // Up to an eighth longer or shorter, to keep workers that started together from polling together.
        long wait = Math.max(pause, 4 * turns.looked());
        nextClaim = turns.took(jobs.size(), shares) ? now : now + wait - wait / 8 + ThreadLocalRandom.current().nextLong(wait / 4 + 1);
        if (jobs.isEmpty()) {
            pause = Math.min(2 * pause, POLL_MAX);
        }
    }

    // Running

    /** The next job for a new thread, or null if there is none or no room. */
    Task begin() {
        if (stopping || busy >= o.concurrency || queued.isEmpty() || holding()) {
            return null;
        }
        busy++;
        return begun(queued.remove());
    }

    private static Task begun(Task task) {
        task.begun = true;
        return task;
    }

    /** Notes how a handler ended, and returns what its thread does next. */
    Task ended(Task task, Throwable how, long start) {
        if (task.left) {
            return null;
        }
        task.thread = null;
        task.ended = true;
        task.done = System.nanoTime();
        long took = task.done - start;
        How outcome = how == null ? How.DONE : how instanceof Outcome other ? other.how : null;
        if (outcome != How.RELEASED) { // else no handler ran
            pace = Math.max(pace == 0 ? took : pace + (took - pace) / 8, 1_000);
        }
        if (outcome == How.SETTLED) {
            settles = true;
            keySettled |= task.job.key() != null;
            finish(task, End.SETTLED);
        } else if (how instanceof LeaseLostException) {
            finish(task, End.LOST);
        } else if (outcome == How.DONE || outcome == How.CANCELLED) { // if the lease was lost, the database will report it
            task.end = outcome == How.DONE ? End.DONE : End.CANCELLED;
            acks.add(task);
        } else if (task.lost) {
            Worker.LOG.log(Level.WARNING, task.gone ? "{0} of queue {1} was removed while it ran, as cancel does" : "the lease of {0} of queue {1} was lost while it ran; it may run elsewhere",
                task.job, queue);
            finish(task, End.LOST);
        } else {
            if (outcome == How.RELEASED && unhandled.size() < 10 * MAX_UNHANDLED) {
                unhandled.add(task.job.kind());
            }
            task.failed(how);
            failures.add(task);
        }
        if (!queued.isEmpty() && !holding()) {
            return begun(queued.remove());
        }
        busy--;
        if (busy == 0 && (keySettled || held.values().stream().anyMatch(t -> t.job.key() != null))) { // the next jobs of these keys are ready once this is written
            nextClaim = Math.min(nextClaim, Math.max(task.done, yields));
        }
        return null;
    }

    /** Whether the group of some jobs that have not begun is to be held. */
    private boolean holding() {
        return !failures.isEmpty() && failures.stream().anyMatch(Task::holds);
    }

    /** Whether the writing thread has something to do after a handler has ended. */
    boolean calls() {
        return stopping || acks.size() == 1 || due().pause == 0;
    }

    /** Notes the end of an attempt that is not done, and returns the jobs to give back: those that were claimed ahead from a group that is held now. */
    List<Task> written(Task task, End end) {
        failures.remove(task);
        if (task.how instanceof Outcome o && o.how == How.RELEASED && o.after.isZero()) { // others that look for jobs meet it first
            yields = System.nanoTime() + YIELDS_FOR;
            nextClaim = Math.max(nextClaim, yields);
        }
        List<Task> ahead = List.of();
        if (task.holds()) {
            ahead = queued.stream().filter(t -> t.job.groupKey().equals(task.job.groupKey())).toList();
            queued.removeAll(ahead);
            Worker.LOG.log(Level.WARNING, task.job + " of queue " + queue + " holds its group " + Values.json(task.job.groupKey()) + " for " + Values.shown(((Outcome) task.how).after)
                + (task.reason() == null ? "" : ": " + task.reason()));
        }
        if (end == End.FAILED || end == End.DEAD) {
            Worker.LOG.log(Level.WARNING, task.job + " of queue " + queue + (end == End.DEAD ? " is a dead letter: " : " failed: ") + task.reason() + task.next(end), task.thrown);
        }
        finish(task, end);
        return ahead;
    }

    void finish(Task task, End end) {
        held.remove(task.job.lease());
        ends.merge(end, 1L, Long::sum);
        if (end == End.DONE || end == End.SETTLED || end == End.CANCELLED) {
            Worker.LOG.log(Level.DEBUG, () -> task.job + " of queue " + queue + " is " + (end == End.CANCELLED ? "cancelled" : "done"));
        }
        try {
            o.onEnd.accept(task.job, end);
        } catch (Throwable e) {
            Worker.LOG.log(Level.WARNING, "onEnd failed", e);
        }
    }

    /** The JSON that says that this worker lives. */
    String heartbeat(boolean stopped) {
        return "{\"worker\": " + Values.json(o.worker) + ", \"version\": \"penstock (Java) " + Penstock.VERSION + "\", \"started_at\": \"" + started + "\", \"concurrency\": " + o.concurrency
            + ", \"groups\": " + turns.groups.stream().map(Values::json).toList() + ", \"running\": " + held.size() + ", \"done\": " + (count(End.DONE) + count(End.SETTLED))
            + ", \"failed\": " + count(End.FAILED) + ", \"dead\": " + count(End.DEAD) + (claimedAt == null ? "" : ", \"claimed_at\": \"" + claimedAt + "\"")
            + (unhandled.isEmpty() ? "" : ", \"unhandled\": " + unhandled.stream().limit(MAX_UNHANDLED).map(Values::json).toList())
            + (stopped ? ", \"stopped\": true}" : "}");
    }

    private long count(End end) {
        return ends.getOrDefault(end, 0L);
    }

    // Leases

    /** Tasks whose leases need extending. */
    List<Task> kept() {
        return held.values().stream().filter(t -> !t.lost).toList();
    }

    void extended(List<Task> asked, List<Long> leases, long until) {
        Set<Long> kept = new HashSet<>(leases);
        for (Task t : asked) {
            if (kept.contains(t.job.lease())) {
                t.until = until;
            } else {
                t.gone = !t.lost && System.nanoTime() - t.until < 0;
                lose(t);
            }
        }
    }

    /**
     * Takes out the tasks that were queued when leases were extended last. The handlers hang, and other workers may be free. So none is claimed ahead until
     * one has ended.
     */
    List<Task> stuck() {
        List<Task> stuck = queued.stream().filter(t -> t.waited).toList();
        if (!stuck.isEmpty()) {
            pace = Math.max(pace, lease / 3.0);
            queued.removeAll(stuck);
        }
        queued.forEach(t -> t.waited = true);
        return stuck;
    }

    /** Gives up tasks whose leases have expired without an answer of the database. */
    void expire() {
        long now = System.nanoTime();
        List.copyOf(held.values()).stream().filter(t -> now - t.until >= 0).forEach(this::lose);
    }

    private void lose(Task task) {
        if (task.ended || task.lost || held.get(task.job.lease()) != task) { // the call that writes its end will report it
            return;
        }
        task.lost = true;
        if (task.begun) {
            task.abort(Job.Aborted.LEASE_LOST);
        } else if (queued.remove(task)) { // otherwise it is being given back
            finish(task, End.LOST);
        }
    }

    // Stopping

    /** Keeps jobs from beginning, and returns those that have not begun. */
    List<Task> stop() {
        stopping = true;
        List<Task> tasks = List.copyOf(queued);
        queued.clear();
        return tasks;
    }

    boolean idle() {
        return busy == 0;
    }

    int running() {
        return busy;
    }

    boolean draining() {
        return stopping && busy == 0;
    }

    boolean stopping() {
        return stopping;
    }

    /** The drain time is over. */
    int interrupt() {
        List<Task> running = held.values().stream().filter(t -> t.begun && !t.ended).toList();
        if (!running.isEmpty()) {
            Worker.LOG.log(Level.WARNING, "the worker of queue " + queue + " aborts the jobs that still run, with the ids "
                + running.stream().map(t -> String.valueOf(t.job.id())).collect(Collectors.joining(", ")));
        }
        running.forEach(t -> t.abort(Job.Aborted.STOPPING));
        return running.size();
    }

    /**
     * Gives up the handlers that still run, and returns how many. Their jobs run again once their leases end, and their results are not
     * written.
     */
    int leave() {
        List<Task> running = held.values().stream().filter(t -> t.begun && !t.ended).toList();
        for (Task t : running) {
            t.ended = true;
            t.left = true;
            held.remove(t.job.lease());
        }
        busy -= running.size();
        return running.size();
    }

    static List<Long> leases(Collection<Task> tasks) {
        return tasks.stream().map(t -> t.job.lease()).toList();
    }
}
