package io.penstock;

import io.penstock.Outcome.How;
import io.penstock.WorkOptions.End;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;
import javax.sql.DataSource;

/**
 * Runs a handler on the jobs of a queue: claims them, extends their leases, writes down how they ended, and gives back what has not begun
 * when it stops. Handlers run in virtual threads if Java has them. It holds three connections.
 */
public final class Worker implements AutoCloseable {
    private static final Logger LOG = System.getLogger("io.penstock");
    private static final long MS = 1_000_000;
    private static final long ACK_EVERY = 20 * MS; // how long the end of a job waits for a claim to carry it, or for others
    private static final long POLL_MIN = 2 * MS;
    private static final long POLL_MAX = 50 * MS;
    private static final long MAINTAIN_EVERY = 500 * MS;
    private static final int CALL_TIMEOUT_MS = 30_000; // ends a call that hangs
    private static final int MAX_ACKS = 10_000;

    private final Penstock penstock;
    private final DataSource dataSource;
    private final String queue;
    private final Handler handler;
    private final WorkOptions o;
    private final long lease;

    private final AtomicBoolean begun = new AtomicBoolean();
    private final CountDownLatch halt = new CountDownLatch(1); // it is to stop
    private final CountDownLatch over = new CountDownLatch(1); // all is written, or given up
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile RuntimeException failed; // what another attempt cannot cure

    private final ReentrantLock lock = new ReentrantLock(); // guards all that follows
    private final Condition changed = lock.newCondition();
    private final Map<Long, Task> held = new LinkedHashMap<>(); // by lease, from the claim until the end is written
    private final Deque<Task> queued = new ArrayDeque<>(); // claimed, not begun
    private final Deque<Task> failures = new ArrayDeque<>();
    private List<Task> acks = new ArrayList<>(); // done, not written, the oldest first
    private int writing; // acks that a call has taken along
    private int busy; // handlers that run
    private double pace; // how long a handler takes, about; 0 is not known
    private long pause = POLL_MIN;
    private long nextClaim = System.nanoTime();
    private boolean settles; // handlers end their jobs in transactions of their own
    private boolean stopping;
    private ExecutorService threads;

    private static final class Task {
        final Job job;
        long until; // when the lease ends, or earlier, by this machine's clock
        boolean begun;
        boolean ended; // the handler has returned
        boolean lost;
        Thread thread; // while the handler runs
        long done;
        End end = End.DONE; // once it is to be acked
        Throwable how; // once it is not

        Task(Job job, long until) {
            this.job = job;
            this.until = until;
        }
    }

    Worker(Penstock penstock, DataSource dataSource, String queue, Handler handler, WorkOptions options) {
        this.penstock = penstock;
        this.dataSource = dataSource;
        this.queue = queue;
        this.handler = handler;
        this.o = options;
        this.lease = nanos(options.lease);
    }

    // Starting and stopping

    /** Runs in a thread of its own until close. What ends it before that is logged. */
    public Worker start() {
        thread("penstock worker", () -> {
            try {
                run();
            } catch (RuntimeException e) {
                LOG.log(Level.ERROR, "the worker of queue " + queue + " has ended", e);
            }
        });
        return this;
    }

    /** Has it claim no more, and give back what has not begun. */
    public void stop() {
        halt.countDown();
    }

    /** Stops, and returns when all is drained. */
    @Override
    public void close() {
        stop();
        if (!begun.compareAndSet(false, true)) {
            awaitUninterrupted(ended, Long.MAX_VALUE);
        }
    }

    void runUntilShutdown() {
        Thread hook = new Thread(this::close, "penstock shutdown");
        Runtime.getRuntime().addShutdownHook(hook);
        try {
            run();
        } finally {
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
            } catch (IllegalStateException e) { // that is what is going on
            }
        }
    }

    /** Runs until stop, and returns once everything is drained. Throws what another attempt cannot cure. */
    public void run() {
        if (!begun.compareAndSet(false, true)) {
            throw new IllegalStateException("a worker runs once");
        }
        try {
            runOnce();
        } finally {
            halt.countDown();
            over.countDown();
            ended.countDown();
        }
    }

    private void runOnce() {
        Line line = new Line();
        line.callPenstock(Penstock::check); // and a database that cannot be reached is told at once
        threads = handlerThreads();
        Thread writer = thread("penstock claim", () -> write(line));
        thread("penstock extend", this::extend);
        thread("penstock maintain", this::maintain);
        while (!awaitUninterrupted(halt, Math.min(lease / 10, 1_000 * MS))) {
            expire();
        }
        giveBack(locked(this::unbegun));
        waitForHandlers(failed == null ? nanos(o.drain) : 0);
        locked(() -> {
            held.values().stream().filter(t -> t.begun && !t.ended).forEach(t -> abort(t, Job.Aborted.STOPPING));
            return null;
        });
        waitForHandlers(Long.MAX_VALUE);
        join(writer, nanos(o.drain) + 1_000 * MS);
        over.countDown();
        threads.shutdown();
        if (failed != null) {
            throw failed;
        }
        int left = locked(held::size);
        if (left > 0) {
            throw new PenstockException("how " + left + " jobs ended could not be written within " + o.drain + "; they run again when their leases end", null);
        }
    }

    private List<Task> unbegun() {
        stopping = true;
        List<Task> tasks = List.copyOf(queued);
        queued.clear();
        changed.signalAll();
        return tasks;
    }

    private void waitForHandlers(long most) {
        long start = System.nanoTime();
        while (locked(() -> {
            long left = most - (System.nanoTime() - start);
            if (busy == 0 || left <= 0) {
                return false;
            }
            awaitChange(Math.min(left, 100 * MS));
            return true;
        })) {
            expire();
        }
    }

    private void giveBack(List<Task> tasks) {
        if (tasks.isEmpty()) {
            return;
        }
        Line line = new Line();
        try {
            line.call(q -> q.release(leases(tasks), Duration.ZERO));
        } catch (RuntimeException e) {
            LOG.log(Level.WARNING, "cannot give back jobs that have not begun; they come back when their leases end", e);
        } finally {
            line.close();
        }
        locked(() -> {
            tasks.forEach(t -> finish(t, End.RELEASED));
            changed.signalAll();
            return null;
        });
    }

    // Claiming, and writing down how jobs ended: one thread, one call at a time

    private enum Action { CLAIM, ACK, FAIL, WAIT, END }

    /** What to do now, how many jobs to claim, or how long to wait. */
    private record Due(Action action, int n, long pause) {}

    private Due due() {
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

    /** How many jobs to claim now: for the handlers that are free, and ahead for the time until the next claim. */
    private int wanted() {
        if (stopping) {
            return 0;
        }
        int ahead = pace == 0 ? 0 : (int) Math.min(o.batch, o.concurrency * (Math.min(100 * MS, lease / 10) / pace));
        if (queued.size() > ahead / 2 || acks.size() + writing >= 4 * o.batch) { // the acks keep pace, or no more is claimed
            return 0;
        }
        return Math.max(0, Math.min(o.batch, o.concurrency - busy + ahead - queued.size()));
    }

    private void write(Line line) {
        int failed = 0;
        long giveUp = 0;
        while (over.getCount() > 0) {
            Due due = locked(() -> {
                Due d = due();
                if (d.action == Action.WAIT) {
                    awaitChange(d.pause);
                }
                return d;
            });
            if (locked(() -> stopping && busy == 0) && giveUp == 0) {
                giveUp = System.nanoTime() + nanos(o.drain);
            }
            if (due.action == Action.END || failed > 0 && giveUp != 0 && System.nanoTime() - giveUp > 0) {
                break;
            }
            try {
                switch (due.action) {
                    case CLAIM -> claim(line, due.n);
                    case ACK -> ack(line);
                    case FAIL -> fail(line);
                    default -> { }
                }
                failed = due.action == Action.WAIT ? failed : 0;
            } catch (RuntimeException e) {
                if (permanent(e)) {
                    break;
                }
                backOff(failed++, Long.MAX_VALUE, "cannot " + due.action.name().toLowerCase() + " jobs", e, halt.getCount() > 0 ? halt : over);
            }
        }
        line.close();
    }

    private void claim(Line line, int n) {
        long start = System.nanoTime();
        List<Task> tasks = locked(this::takeAcks);
        Queue.Claimed got;
        try {
            // Jobs that may share a lease are acked faster together, but acks of them in several transactions wait for each other.
            boolean apart = tasks.isEmpty() && locked(() -> settles);
            got = line.call(q -> q.claim(n, o.lease, o.groupKey, o.worker, apart ? null : leases(tasks)));
        } catch (RuntimeException e) {
            locked(() -> returnAcks(tasks));
            throw e;
        }
        giveBack(locked(() -> {
            acked(tasks, got.acked());
            for (Job job : got.jobs()) {
                Task task = new Task(job, start + lease);
                held.put(job.lease(), task);
                queued.add(task);
            }
            long now = System.nanoTime();
            if (!got.jobs().isEmpty()) {
                pause = POLL_MIN;
            }
            nextClaim = got.jobs().size() == n ? now : now + pause;
            if (got.jobs().isEmpty()) {
                pause = Math.min(2 * pause, POLL_MAX);
            }
            if (stopping) {
                return unbegun();
            }
            while (busy < o.concurrency && !queued.isEmpty()) {
                Task task = queued.remove();
                task.begun = true;
                busy++;
                threads.execute(() -> handle(task));
            }
            return List.of();
        }));
    }

    private void ack(Line line) {
        List<Task> tasks = locked(this::takeAcks);
        try {
            List<Long> leases = line.call(q -> q.ackMany(leases(tasks)));
            locked(() -> acked(tasks, leases));
        } catch (RuntimeException e) {
            locked(() -> returnAcks(tasks));
            throw e;
        }
    }

    private List<Task> takeAcks() {
        int n = Math.min(acks.size(), MAX_ACKS);
        List<Task> tasks = List.copyOf(acks.subList(0, n));
        acks = new ArrayList<>(acks.subList(n, acks.size()));
        writing += n;
        return tasks;
    }

    private Void returnAcks(List<Task> tasks) {
        writing -= tasks.size();
        acks.addAll(0, tasks);
        return null;
    }

    private Void acked(List<Task> tasks, List<Long> leases) {
        writing -= tasks.size();
        Set<Long> kept = new HashSet<>(leases);
        for (Task t : tasks) {
            finish(t, kept.contains(t.job.lease()) ? t.end : End.LOST);
        }
        return null;
    }

    private void fail(Line line) {
        Task task = locked(failures::getFirst);
        End end;
        try {
            end = line.call(q -> tell(q, task, reason(task.how)));
        } catch (LeaseLostException e) {
            end = End.LOST;
        } catch (PenstockException e) {
            if (!"22P05".equals(e.sqlState())) {
                throw e;
            }
            end = line.call(q -> tell(q, task, reason(task.how).replaceAll("[^ -~\\s]", "?"))); // a database that is not in UTF-8
        }
        if (end == End.FAILED || end == End.DEAD) {
            LOG.log(Level.WARNING, "{0} of queue {1} {2}: {3}", task.job, queue, end == End.DEAD ? "is a dead letter" : "failed", reason(task.how));
        }
        End written = end;
        locked(() -> {
            failures.remove(task);
            finish(task, written);
            return null;
        });
    }

    private static End tell(Queue q, Task task, String reason) {
        long lease = task.job.lease();
        How how = task.how instanceof Outcome outcome ? outcome.how : null;
        Duration after = task.how instanceof Outcome outcome ? outcome.after : null;
        if (how == How.DEAD_LETTER) {
            q.deadLetter(lease, reason);
            return End.DEAD;
        }
        boolean interrupted = how == null && task.job.aborted != null; // it is not the job's fault
        if (how == How.SNOOZE || interrupted) {
            boolean gone = q.release(List.of(lease), after == null ? Duration.ZERO : after).isEmpty();
            return gone ? End.LOST : interrupted ? End.RELEASED : End.SNOOZED;
        }
        return q.retry(lease, after, reason) ? End.FAILED : End.DEAD;
    }

    private static String reason(Throwable how) {
        return how instanceof Outcome ? how.getMessage() : how.toString();
    }

    private void finish(Task task, End end) {
        held.remove(task.job.lease());
        try {
            o.onEnd.accept(task.job, end);
        } catch (RuntimeException e) {
            LOG.log(Level.WARNING, "onEnd failed", e);
        }
    }

    // Running handlers

    private void handle(Task first) {
        for (Task task = first; task != null;) {
            Task current = task;
            long start = System.nanoTime();
            Throwable how;
            try {
                if (locked(() -> beginsIn(current, Thread.currentThread()))) {
                    how = handler.handle(task.job);
                } else {
                    how = new InterruptedException();
                }
            } catch (Throwable e) {
                how = e;
            }
            Throwable result = how;
            task = locked(() -> ended(current, result, start));
        }
    }

    private static boolean beginsIn(Task task, Thread thread) {
        task.thread = thread;
        return task.job.aborted == null;
    }

    /** Notes how a handler ended, and returns what its thread does next. */
    private Task ended(Task task, Throwable how, long start) {
        task.thread = null;
        Thread.interrupted();
        task.ended = true;
        task.done = System.nanoTime();
        long took = task.done - start;
        pace = Math.max(pace == 0 ? took : pace + (took - pace) / 8, 1_000);
        How outcome = how == null ? How.DONE : how instanceof Outcome other ? other.how : null;
        if (outcome == How.SETTLED) {
            settles = true;
            finish(task, End.SETTLED);
        } else if (how instanceof LeaseLostException) {
            finish(task, End.LOST);
        } else if (outcome == How.DONE || outcome == How.CANCELLED) { // if the lease was lost, the database will say so
            task.end = outcome == How.DONE ? End.DONE : End.CANCELLED;
            acks.add(task);
        } else if (task.lost) {
            LOG.log(Level.WARNING, "the lease of {0} of queue {1} was lost while it ran; it may run elsewhere", task.job, queue);
            finish(task, End.LOST);
        } else {
            task.how = how;
            failures.add(task);
        }
        Task next = queued.poll();
        if (next != null) {
            next.begun = true;
        } else {
            busy--;
        }
        if (stopping || acks.size() == 1 || due().pause == 0) {
            changed.signalAll();
        }
        return next;
    }

    private void abort(Task task, Job.Aborted cause) {
        if (task.job.aborted == null) {
            task.job.aborted = cause;
            if (task.thread != null) {
                task.thread.interrupt();
            }
        }
    }

    /** Virtual threads where Java has them, from 21 on. */
    private static ExecutorService handlerThreads() {
        try {
            return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (ReflectiveOperationException e) {
            return Executors.newCachedThreadPool(task -> daemon("penstock handler", task));
        }
    }

    // Leases

    private void extend() {
        Line line = new Line();
        long wait = lease / 3;
        int failed = 0;
        while (!awaitUninterrupted(over, wait)) {
            List<Task> tasks = locked(() -> held.values().stream().filter(t -> !t.lost).toList());
            if (tasks.isEmpty()) {
                continue;
            }
            long start = System.nanoTime();
            try {
                Set<Long> kept = new HashSet<>(line.call(q -> q.extend(leases(tasks), o.lease)));
                locked(() -> {
                    tasks.stream().filter(t -> kept.contains(t.job.lease())).forEach(t -> t.until = start + lease);
                    tasks.stream().filter(t -> !kept.contains(t.job.lease())).forEach(this::lose);
                    changed.signalAll();
                    return null;
                });
                failed = 0;
                wait = lease / 3;
            } catch (RuntimeException e) {
                if (permanent(e)) {
                    break;
                }
                backOff(failed++, lease / 10, "cannot extend the leases of jobs", e, over);
                wait = 0;
            }
        }
        line.close();
    }

    /** Gives up those whose time is over without an answer of the database. */
    private void expire() {
        long now = System.nanoTime();
        locked(() -> {
            List.copyOf(held.values()).stream().filter(t -> now - t.until >= 0).forEach(this::lose);
            return null;
        });
    }

    private void lose(Task task) {
        if (task.ended || task.lost || held.get(task.job.lease()) != task) { // whatever writes its end will tell
            return;
        }
        task.lost = true;
        if (task.begun) {
            abort(task, Job.Aborted.LEASE_LOST);
        } else {
            queued.remove(task);
            finish(task, End.LOST);
        }
    }

    private void maintain() {
        Line line = new Line();
        int failed = 0;
        do {
            try {
                line.call(q -> {
                    q.maintain();
                    return null;
                });
                failed = 0;
            } catch (RuntimeException e) {
                if (permanent(e)) {
                    break;
                }
                backOff(failed++, Long.MAX_VALUE, "the queue's housekeeping failed", e, halt);
            }
        } while (!awaitUninterrupted(halt, MAINTAIN_EVERY));
        line.close();
    }

    // Small things

    /** A connection that is made when it is needed, and made anew after an error. */
    private final class Line {
        private Connection connection;
        private boolean autoCommit;

        <T> T call(Function<Queue, T> statement) {
            return callPenstock(p -> statement.apply(p.queue(queue)));
        }

        <T> T callPenstock(Function<Penstock, T> statement) {
            try {
                if (connection == null) {
                    connection = dataSource.getConnection();
                    autoCommit = connection.getAutoCommit();
                    connection.setAutoCommit(true);
                    connection.setNetworkTimeout(Runnable::run, CALL_TIMEOUT_MS);
                }
                return statement.apply(Penstock.on(connection).withSchemaOf(penstock));
            } catch (SQLException | RuntimeException e) {
                close();
                throw PenstockException.of(e);
            }
        }

        void close() {
            try (Connection closed = connection) {
                connection = null;
                if (closed != null) {
                    closed.setNetworkTimeout(Runnable::run, 0);
                    closed.setAutoCommit(autoCommit);
                }
            } catch (SQLException e) { // it is of no use any more
            }
        }
    }

    /** Whether another attempt cannot cure it; the worker stops then. */
    private boolean permanent(RuntimeException e) {
        if (!(e instanceof NotFoundException || e instanceof SchemaException || e instanceof FieldException)) {
            return false;
        }
        failed = e;
        stop();
        return true;
    }

    /** The pause after failures in a row: doubling from 50 ms to 5 s, and up to half of it less, so that many workers do not come back together. */
    private void backOff(int failures, long most, String what, RuntimeException e, CountDownLatch until) {
        long full = Math.min(Math.min((50 * MS) << Math.min(failures, 7), 5_000 * MS), most);
        long pause = ThreadLocalRandom.current().nextLong(full / 2, full + 1);
        LOG.log(Level.WARNING, "queue {0}: {1}; trying again in {2} ms: {3}", queue, what, pause / MS, e);
        awaitUninterrupted(until, pause);
    }

    private interface Locked<T> {
        T run();
    }

    private <T> T locked(Locked<T> part) {
        lock.lock();
        try {
            return part.run();
        } finally {
            lock.unlock();
        }
    }

    private void awaitChange(long nanos) {
        try {
            changed.awaitNanos(nanos);
        } catch (InterruptedException e) {
            halt.countDown();
        }
    }

    /** Whether it came to that within the time. An interrupt of the thread that runs the worker stops it. */
    private boolean awaitUninterrupted(CountDownLatch latch, long nanos) {
        try {
            return latch.await(nanos, TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            halt.countDown();
            return latch.getCount() == 0;
        }
    }

    private static void join(Thread thread, long nanos) {
        try {
            TimeUnit.NANOSECONDS.timedJoin(thread, nanos);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static Thread thread(String name, Runnable task) {
        Thread thread = daemon(name, task);
        thread.start();
        return thread;
    }

    private static Thread daemon(String name, Runnable task) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }

    private static List<Long> leases(Collection<Task> tasks) {
        return tasks.stream().map(t -> t.job.lease()).toList();
    }

    private static long nanos(Duration time) {
        return time.compareTo(Duration.ofDays(10_000)) > 0 ? Duration.ofDays(10_000).toNanos() : time.toNanos();
    }
}
