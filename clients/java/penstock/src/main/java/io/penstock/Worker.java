package io.penstock;

import io.penstock.Desk.Action;
import io.penstock.Desk.Task;
import io.penstock.WorkOptions.End;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import javax.sql.DataSource;

/**
 * Runs a handler on the jobs of a queue. It claims jobs, extends their leases, and writes how they ended. When it stops, it gives back
 * jobs that have not begun. Handlers run in virtual threads if Java has them. It holds three connections.
 */
public final class Worker implements AutoCloseable {
    static final Logger LOG = Log.get();
    private static final long MS = Desk.MS;
    private static final long MAINTAIN_EVERY = 500 * MS;
    private static final long HEARTBEAT_EVERY = 30_000 * MS;
    private static final String REACHING = "cannot reach the database";
    private static final String WRITING = "cannot claim or end jobs";
    private static final String EXTENDING = "cannot extend leases";
    private static final String MAINTAINING = "cannot do the maintenance";

    private final Penstock penstock;
    private final DataSource dataSource;
    private final String queue;
    private final Handler handler;
    private final WorkOptions o;
    private final long lease;

    private final Outage outage;
    private final AtomicBoolean begun = new AtomicBoolean();
    private final CountDownLatch halt = new CountDownLatch(1); // it is to stop
    private final CountDownLatch over = new CountDownLatch(1); // everything is written, or given up
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile RuntimeException failed; // an error that another attempt cannot cure

    private final ReentrantLock lock = new ReentrantLock(); // guards the desk
    private final Condition changed = lock.newCondition();
    private final Desk desk;
    private final Consumer<Consumer<Queue>> caller = this::call; // of handlers that report
    private ExecutorService threads;
    private volatile boolean working;

    Worker(Penstock penstock, DataSource dataSource, String queue, Handler handler, WorkOptions options) {
        this.penstock = penstock;
        this.dataSource = dataSource;
        this.queue = queue;
        this.handler = Values.given("handler", handler);
        this.o = Values.given("options", options);
        this.lease = nanos(options.lease);
        this.desk = new Desk(queue, options);
        this.outage = new Outage(queue);
    }

    // Starting and stopping

    /** Runs in a separate thread until close. An error that ends it before that is logged. */
    public Worker start() {
        begin();
        thread("penstock worker", () -> {
            try {
                runBegun();
            } catch (RuntimeException e) {
                LOG.log(Level.ERROR, "the worker of queue " + queue + " has ended", e);
            }
        });
        return this;
    }

    /** Tries once what run begins with. Throws if the database cannot be reached, its schema does not fit, or the queue does not exist. */
    public void check() {
        Line line = new Line(penstock, dataSource, queue);
        try {
            check(line);
        } finally {
            line.close();
        }
    }

    private static void check(Line line) {
        line.callPenstock(Penstock::check);
        line.call(q -> {
            q.maintain();
            return null;
        });
    }

    /** Whether it has checked the database successfully, and has not ended. */
    public boolean isWorking() {
        return working && ended.getCount() > 0;
    }

    /** Why its calls of the database fail at present, or null while they work. The worker continues meanwhile. */
    public RuntimeException trouble() {
        return outage.trouble();
    }

    /** Makes it claim no more, and give back jobs that have not begun. */
    public void stop() {
        halt.countDown();
    }

    /** Stops, and returns when everything is drained. */
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
            } catch (IllegalStateException e) { // the shutdown is in progress
            }
        }
    }

    /**
     * Runs until stop, and returns once everything is drained. It waits for a database that cannot be reached. Throws an error that another attempt
     * cannot cure.
     */
    public void run() {
        begin();
        runBegun();
    }

    private void begin() {
        if (!begun.compareAndSet(false, true)) {
            throw new IllegalStateException("a worker runs once, and this one was started or closed before: make another one with worker(…)");
        }
    }

    private void runBegun() {
        try {
            runOnce();
        } finally {
            halt.countDown();
            over.countDown();
            ended.countDown();
        }
    }

    private void runOnce() {
        Line line = new Line(penstock, dataSource, queue);
        if (!reach(line)) {
            return;
        }
        working = true;
        LOG.log(Level.INFO, "a worker of queue {0} has started: {1}, concurrency {2}", queue, o.worker, o.concurrency);
        threads = handlerThreads();
        Thread writer = thread("penstock claim", orStop(() -> write(line)));
        thread("penstock extend", orStop(this::extend));
        Thread maintainer = thread("penstock maintain", orStop(this::maintain));
        while (!awaitUninterrupted(halt, Math.min(lease / 10, 1_000 * MS))) {
            lockedRun(desk::expire);
        }
        giveBack(locked(this::unbegun));
        if (failed == null) {
            LOG.log(Level.INFO, "the worker of queue {0} stops; running jobs: {1}, waits up to {2}", queue, locked(desk::running), Values.shown(o.drainTimeout));
            waitForHandlers(nanos(o.drainTimeout));
        }
        int interrupted = locked(desk::interrupt);
        waitForHandlers(Math.max(nanos(o.drainTimeout), 1_000 * MS)); // a handler that ignores the interrupt cannot be ended
        int busy = locked(() -> {
            changed.signalAll();
            return desk.leave();
        });
        join(writer, nanos(o.drainTimeout) + 1_000 * MS);
        over.countDown();
        join(maintainer, 1_000 * MS); // it says that this worker has stopped
        threads.shutdown();
        if (failed != null) {
            throw failed;
        }
        if (busy > 0) {
            throw new PenstockException("handlers that were left, because they went on after the drain time: " + busy + "; their jobs run again when their leases end", null);
        }
        int left = locked(desk.held::size);
        if (left > 0) {
            throw new PenstockException("how " + left + " jobs ended could not be written within " + Values.shown(o.drainTimeout) + "; they run again when their leases end", null);
        }
        LOG.log(Level.INFO, "the worker of queue {0} has stopped; interrupted jobs: {1}", queue, interrupted);
    }

    /** Tries until the database answers. False: it is stopped before. */
    private boolean reach(Line line) {
        for (int failed = 0; halt.getCount() > 0; failed++) {
            try {
                check(line);
                outage.worked(REACHING);
                return true;
            } catch (RuntimeException e) {
                if (!Outage.away(e)) {
                    throw e;
                }
                backOff(failed, Long.MAX_VALUE, REACHING, e, " (start the database, or correct its address)", halt);
            }
        }
        return false;
    }

    private List<Task> unbegun() {
        List<Task> tasks = desk.stop();
        changed.signalAll();
        return tasks;
    }

    private void waitForHandlers(long most) {
        long start = System.nanoTime();
        while (locked(() -> {
            long left = most - (System.nanoTime() - start);
            if (desk.idle() || left <= 0) {
                return false;
            }
            awaitChange(Math.min(left, 100 * MS));
            return true;
        })) {
            lockedRun(desk::expire);
        }
    }

    private void giveBack(List<Task> tasks) {
        if (tasks.isEmpty()) {
            return;
        }
        Line line = new Line(penstock, dataSource, queue);
        try {
            line.call(q -> q.release(Desk.leases(tasks), Duration.ZERO));
        } catch (RuntimeException e) {
            LOG.log(Level.WARNING, "cannot give back jobs that have not begun; they come back when their leases end", e);
        } finally {
            line.close();
        }
        lockedRun(() -> {
            tasks.forEach(t -> desk.finish(t, End.RELEASED));
            changed.signalAll();
        });
    }

    // Claiming, and writing the ends of jobs: one thread, one call at a time

    private void write(Line line) {
        int failed = 0;
        long giveUp = 0;
        while (over.getCount() > 0) {
            Desk.Due due = locked(() -> {
                Desk.Due d = desk.due();
                if (d.action() == Action.WAIT) {
                    awaitChange(d.pause());
                }
                return d;
            });
            if (locked(desk::draining) && giveUp == 0) {
                giveUp = System.nanoTime() + nanos(o.drainTimeout);
            }
            if (due.action() == Action.END || failed > 0 && giveUp != 0 && System.nanoTime() - giveUp > 0) {
                break;
            }
            try {
                switch (due.action()) {
                    case CLAIM -> claim(line, due.n());
                    case ACK -> ack(line);
                    case FAIL -> fail(line);
                    default -> { }
                }
                if (due.action() != Action.WAIT) {
                    failed = 0;
                    outage.worked(WRITING);
                }
            } catch (RuntimeException e) {
                if (permanent(e)) {
                    break;
                }
                backOff(failed++, Long.MAX_VALUE, WRITING, e, halt.getCount() > 0 ? halt : over);
            }
        }
        line.close();
    }

    private void claim(Line line, int n) {
        Map<String, Integer> turn = desk.turns.next(line, n, locked(desk::several));
        long start = System.nanoTime();
        List<Task> tasks = locked(desk::takeAcks);
        Map<String, Integer> shares = turn.isEmpty() && !tasks.isEmpty() ? Map.of(desk.turns.group(), n) : turn; // its jobs may wait for the end of those
        Queue.Claimed got;
        try {
            List<Long> carried = locked(() -> desk.carried(tasks));
            got = shares.isEmpty() ? new Queue.Claimed(List.of(), List.of(), false) : line.call(q -> q.claimGroups(shares, o.lease, o.worker, carried));
        } catch (RuntimeException e) {
            lockedRun(() -> desk.returnAcks(tasks));
            throw e;
        }
        long asked = System.nanoTime();
        Queue.Claimed lasting = asked - start < lease ? got : stillLeased(line, got);
        giveBack(locked(() -> {
            desk.acked(tasks, got.acked());
            desk.claimed(lasting, shares, (lasting == got ? start : asked) + lease);
            if (desk.stopping()) {
                return unbegun();
            }
            for (Task next = desk.begin(); next != null; next = desk.begin()) {
                Task task = next;
                threads.execute(() -> handle(task));
            }
            return List.of();
        }));
    }

    /**
     * Returns a claim with those of its jobs whose leases last. It took longer than a lease, so they may run elsewhere, and are extended first.
     * Without an answer none of them begins.
     */
    private Queue.Claimed stillLeased(Line line, Queue.Claimed got) {
        if (got.jobs().isEmpty()) {
            return got;
        }
        try {
            List<Long> leases = line.call(q -> q.extend(got.jobs().stream().map(Job::lease).toList(), o.lease));
            return new Queue.Claimed(got.jobs().stream().filter(job -> leases.contains(job.lease())).toList(), got.acked(), got.full());
        } catch (RuntimeException e) {
            return new Queue.Claimed(List.of(), got.acked(), got.full());
        }
    }

    private void ack(Line line) {
        List<Task> tasks = locked(desk::takeAcks);
        try {
            List<Long> leases = line.call(q -> q.ackMany(Desk.leases(tasks)));
            lockedRun(() -> desk.acked(tasks, leases));
        } catch (RuntimeException e) {
            lockedRun(() -> desk.returnAcks(tasks));
            throw e;
        }
    }

    private void fail(Line line) {
        Task task = locked(desk.failures::getFirst);
        End end;
        try {
            end = line.call(q -> task.tell(q, text -> text));
        } catch (LeaseLostException e) {
            end = End.LOST;
        } catch (PenstockException e) {
            if (!"22P05".equals(e.sqlState())) {
                throw e;
            }
            end = line.call(q -> task.tell(q, text -> text.replaceAll("[^ -~\\s]", "?"))); // a database that is not in UTF-8
        }
        End written = end;
        giveBack(locked(() -> desk.written(task, written)));
    }

    // Running handlers

    private void handle(Task first) {
        for (Task task = first; task != null;) {
            Task current = task;
            long start = System.nanoTime();
            Throwable how;
            current.job.caller = caller;
            try {
                if (locked(() -> beginsIn(current, Thread.currentThread()))) {
                    how = Limits.within(task.job.timeout(), handler, task.job);
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

    private void call(Consumer<Queue> statement) {
        Line line = new Line(penstock, dataSource, queue);
        try {
            line.call(q -> {
                statement.accept(q);
                return null;
            });
        } finally {
            line.close();
        }
    }

    private static boolean beginsIn(Task task, Thread thread) {
        task.thread = thread;
        return task.job.aborted == null;
    }

    private Task ended(Task task, Throwable how, long start) {
        Task next = desk.ended(task, how, start);
        Thread.interrupted(); // it was meant for that job
        if (desk.calls()) {
            changed.signalAll();
        }
        return next;
    }

    /** Virtual threads if Java has them, from 21 on. */
    private static ExecutorService handlerThreads() {
        try {
            return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (ReflectiveOperationException e) {
            return Executors.newCachedThreadPool(task -> daemon("penstock handler", task));
        }
    }

    // Leases

    private void extend() {
        Line line = new Line(penstock, dataSource, queue);
        long wait = lease / 3;
        int failed = 0;
        while (!awaitUninterrupted(over, wait)) {
            List<Task> tasks = locked(desk::kept);
            if (tasks.isEmpty()) {
                outage.worked(EXTENDING);
                continue;
            }
            long start = System.nanoTime();
            try {
                List<Long> leases = line.call(q -> q.extend(Desk.leases(tasks), o.lease));
                List<Task> stuck = locked(() -> {
                    desk.extended(tasks, leases, start + lease);
                    changed.signalAll();
                    return desk.stuck();
                });
                failed = 0;
                outage.worked(EXTENDING);
                wait = lease / 3;
                if (!stuck.isEmpty()) {
                    LOG.log(Level.WARNING, "no handler has begun {0} jobs of queue {1} for long: they are given back for other workers", stuck.size(), queue);
                    giveBack(stuck);
                }
            } catch (RuntimeException e) {
                if (permanent(e)) {
                    break;
                }
                backOff(failed++, lease / 10, EXTENDING, e, over);
                wait = 0;
            }
        }
        line.close();
    }

    private void maintain() {
        Line line = new Line(penstock, dataSource, queue);
        int failed = 0;
        long heartbeat = System.nanoTime();
        do {
            try {
                line.call(q -> {
                    q.maintain();
                    return null;
                });
                failed = 0;
                outage.worked(MAINTAINING);
                if (System.nanoTime() - heartbeat >= 0) {
                    heartbeat = System.nanoTime() + ThreadLocalRandom.current().nextLong(HEARTBEAT_EVERY * 7 / 8, HEARTBEAT_EVERY * 9 / 8);
                    heartbeat(line, false);
                }
            } catch (RuntimeException e) {
                if (permanent(e)) {
                    break;
                }
                backOff(failed++, Long.MAX_VALUE, MAINTAINING, e, halt);
            }
        } while (!awaitUninterrupted(halt, MAINTAIN_EVERY));
        awaitUninterrupted(over, Long.MAX_VALUE);
        if (this.failed == null) {
            heartbeat(line, true);
        }
        line.close();
    }

    /** Says that this worker lives, or has stopped. Only operators see it, so nothing else depends on it. */
    private void heartbeat(Line line, boolean stopped) {
        String report = locked(() -> desk.heartbeat(stopped));
        try {
            line.call(q -> {
                q.heartbeat(report);
                return null;
            });
        } catch (RuntimeException e) {
            LOG.log(Level.DEBUG, "cannot send a heartbeat", e);
        }
    }

    // Helpers

    /** Whether another attempt would not help. Then the worker stops. */
    private boolean permanent(RuntimeException e) {
        if (!(e instanceof NotFoundException || e instanceof SchemaException || e instanceof FieldException)) {
            return false;
        }
        failed = e;
        stop();
        return true;
    }

    /**
     * The pause after failures in a row. It doubles from 50 ms to 5 s and is up to half shorter, to keep many workers from coming back
     * together.
     */
    private void backOff(int failures, long most, String what, RuntimeException e, CountDownLatch until) {
        backOff(failures, most, what, e, "", until);
    }

    private void backOff(int failures, long most, String what, RuntimeException e, String step, CountDownLatch until) {
        long full = Math.min(Math.min((50 * MS) << Math.min(failures, 7), 5_000 * MS), most);
        long pause = ThreadLocalRandom.current().nextLong(full / 2, full + 1);
        outage.failed(what, e, step);
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

    private void lockedRun(Runnable part) {
        locked(() -> {
            part.run();
            return null;
        });
    }

    private void awaitChange(long nanos) {
        try {
            changed.awaitNanos(nanos);
        } catch (InterruptedException e) {
            halt.countDown();
        }
    }

    /** Whether the condition came true within the time. An interrupt of the thread that runs the worker stops it. */
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

    /** Without one of its threads a worker would claim nothing, or lose its leases, and seem to work. So it stops after an Error, as one for lack of threads. */
    private Runnable orStop(Runnable task) {
        return () -> {
            try {
                task.run();
            } catch (Error e) {
                failed = new PenstockException("a thread of the worker has ended: " + e, e);
                stop();
            }
        };
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

    static long nanos(Duration time) {
        return time.compareTo(Duration.ofDays(10_000)) > 0 ? Duration.ofDays(10_000).toNanos() : time.toNanos();
    }
}
