package io.penstock.spring.boot;

import io.penstock.Handler;
import io.penstock.NotFoundException;
import io.penstock.Outcome;
import io.penstock.Penstock;
import io.penstock.SchemaException;
import io.penstock.WorkOptions;
import io.penstock.Worker;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;
import org.springframework.context.SmartLifecycle;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.TransactionException;
import org.springframework.transaction.TransactionStatus;
import org.springframework.transaction.support.DefaultTransactionDefinition;

/**
 * Starts the workers with the application, and drains them before the beans that they use are destroyed. A worker waits for a database that cannot be
 * reached. One that ends early, as where the database is not migrated or lacks the queue, is started again, with growing pauses. Its thread keeps an
 * application without a web server alive.
 */
class PenstockWorkers implements SmartLifecycle {
    static final Log LOG = LogFactory.getLog("io.penstock");

    private final Penstock penstock;
    private final PenstockProperties properties;
    private final List<PenstockWorker> workers;
    private final HandlerMethods methods;
    private final PlatformTransactionManager transactions;
    private final PenstockMigration migration;
    private final Pool pool;
    private final WorkerObserver observer;
    private volatile List<String> queues = List.of();
    private volatile List<Running> running = List.of();
    private CountDownLatch stopping;

    PenstockWorkers(Penstock penstock, PenstockProperties properties, List<PenstockWorker> workers, HandlerMethods methods, PlatformTransactionManager transactions,
        PenstockMigration migration, WorkerObserver observer, Pool pool) {
        this.penstock = penstock;
        this.properties = properties;
        this.workers = workers;
        this.methods = methods;
        this.transactions = transactions;
        this.migration = migration; // or null
        this.observer = observer; // or null
        this.pool = pool;
    }

    @Override
    public synchronized void start() {
        List<Running> all = new ArrayList<>();
        workers.forEach(worker -> all.add(new Running(worker)));
        Map<String, Map<String, Handler>> found = handlers();
        properties.schedules().forEach((name, schedule) -> {
            Map<String, Handler> kinds = found.get(schedule.queue());
            if (kinds != null && !kinds.containsKey(schedule.kind())) {
                LOG.warn("penstock.schedules." + name + ".kind is \"" + schedule.kind() + "\", for which queue " + schedule.queue()
                    + " has no method with @PenstockHandler. Those that are there are for: " + kinds.keySet());
            }
        });
        properties.work().queues().keySet().stream().filter(queue -> !found.containsKey(queue)).forEach(queue -> LOG.warn("penstock.work.queues." + queue
            + " has no effect: no method with @PenstockHandler is for that queue. Those that are there are for: " + found.keySet()));
        found.forEach((queue, handlers) -> {
            if (workers.stream().anyMatch(w -> w.queue().equals(queue))) {
                throw new StartException("queue " + queue + " has methods with @PenstockHandler and a PenstockWorker, which would take each other's jobs", "Leave out one of them.", null);
            }
            all.add(new Running(new PenstockWorker(queue, Handler.byKind(handlers)).options(properties.work().of(queue))));
        });
        queues = all.stream().map(r -> r.of.queue()).distinct().toList();
        if (migration != null) {
            migration.complete(queues);
        }
        if (observer != null) {
            observer.queues(queues);
        }
        if (!properties.work().enabled()) {
            return;
        }
        properties.groups().keySet().stream().filter(queue -> found.containsKey(queue) && !properties.work().takesGroups(queue)).forEach(queue -> LOG.warn("penstock.groups." + queue
            + " limits groups, and the worker of queue " + queue + " takes only jobs without a group: penstock.work.queues." + queue + ".all-groups=true lets it take those of all groups"));
        if (properties.failFast()) {
            all.forEach(Running::check);
        }
        pool.warn(all.size());
        all.forEach(r -> r.thread.start());
        running = all;
        stopping = new CountDownLatch(1);
        Thread watch = new Thread(() -> watch(all, stopping), "penstock begin");
        watch.setDaemon(true);
        watch.start();
    }

    /** The methods with @PenstockHandler. A wrong one is shown as a wrong property is. */
    private Map<String, Map<String, Handler>> handlers() {
        try {
            return methods.find(this::inTransaction, handler -> handler);
        } catch (IllegalStateException e) {
            throw new StartException(e.getMessage(), "Correct the method or its annotation.", e);
        }
    }

    /** A worker whose first calls hang, or wait for a connection without end, says so too. The pool's error comes first, if it has one. */
    private void watch(List<Running> all, CountDownLatch stopping) {
        try {
            if (!stopping.await(pool.timeout().plusSeconds(1).toMillis(), TimeUnit.MILLISECONDS)) {
                all.forEach(Running::late);
            }
        } catch (InterruptedException e) { // the application ends
        }
    }

    @Override
    public synchronized void stop() {
        if (stopping != null) {
            stopping.countDown();
        }
        running.forEach(Running::stop);
        running.forEach(Running::join);
        running = List.of();
        if (observer != null) {
            observer.queues(List.of());
        }
    }

    /** The queues that have a handler here, also if this process runs no workers. */
    List<String> queues() {
        return queues;
    }

    /** What the worker of a queue does. */
    String state(String queue) {
        List<Running> its = running.stream().filter(r -> r.of.queue().equals(queue)).toList();
        RuntimeException trouble = troubles().get(queue);
        return its.isEmpty() ? "none in this process" : trouble != null ? "does not work: " + trouble.getMessage() : its.stream().allMatch(Running::isWorking) ? "works" : "begins";
    }

    /** For each queue whose worker does not work at present, the reason. */
    Map<String, RuntimeException> troubles() {
        Map<String, RuntimeException> troubles = new LinkedHashMap<>();
        for (Running r : running) {
            RuntimeException trouble = r.trouble();
            if (trouble != null) {
                troubles.put(r.of.queue(), trouble);
            }
        }
        return troubles;
    }

    /** One of the workers, and those that replace it when it ends. */
    private final class Running {
        private final PenstockWorker of;
        private final Handler handler;
        private final WorkOptions options;
        private final CountDownLatch stopped = new CountDownLatch(1);
        private final Thread thread;
        private Worker worker;
        private RuntimeException ended;

        Running(PenstockWorker of) {
            this.of = of;
            Handler given = of.transactional() ? inTransaction(of.queue(), of.handler()) : of.handler();
            WorkerObserver.Of observed = observer == null ? null : observer.of(of.queue(), of.handler().kinds());
            this.handler = JobContext.around(of.queue(), observed == null ? given : observed(given, observed));
            this.options = observed == null ? of.options() : new WorkOptions(of.options()).onEnd(observed::ended);
            this.thread = new Thread(this::run, "penstock worker of " + of.queue());
            next();
        }

        private synchronized Worker next() {
            worker = penstock.worker(of.queue(), handler, options);
            if (stopped.getCount() == 0) {
                worker.stop();
            }
            return worker;
        }

        void check() {
            try {
                worker.check();
            } catch (RuntimeException e) {
                throw new StartException("penstock.fail-fast is true, and the worker of queue " + of.queue() + " cannot begin: " + e.getMessage() + next(e),
                    "Correct this, or leave out penstock.fail-fast: then the worker begins once it can.", e);
            }
        }

        private void run() {
            Worker current = worker;
            for (long pause = 1; ; pause = Math.min(2 * pause, 30), current = next()) {
                try {
                    current.run();
                    return;
                } catch (RuntimeException e) {
                    if (stopped.getCount() == 0) {
                        LOG.warn("the worker of queue " + of.queue() + " has stopped: " + e.getMessage());
                        return;
                    }
                    LOG.error("the worker of queue " + of.queue() + " has ended, and is started again in " + pause + " s: " + e.getMessage() + next(e));
                    ended(current, e);
                }
                try {
                    if (stopped.await(pause, TimeUnit.SECONDS)) {
                        return;
                    }
                } catch (InterruptedException e) {
                    return;
                }
            }
        }

        private String next(RuntimeException e) {
            return migration == null && (e instanceof SchemaException || e instanceof NotFoundException) ? "; or penstock.migrate=true lets the start do it" : "";
        }

        private synchronized void ended(Worker of, RuntimeException e) {
            if (of == worker) {
                ended = e;
            }
        }

        synchronized void late() {
            if (!worker.isWorking() && worker.trouble() == null && ended == null) {
                ended = new IllegalStateException("has not begun after " + pool.timeout().plusSeconds(1).toSeconds() + " s: it waits for a connection, or for an answer of the database");
                LOG.warn("the worker of queue " + of.queue() + " " + ended.getMessage());
            }
        }

        synchronized boolean isWorking() {
            return worker.isWorking();
        }

        synchronized RuntimeException trouble() {
            RuntimeException trouble = worker.trouble();
            return trouble != null || worker.isWorking() ? trouble : ended;
        }

        synchronized void stop() {
            stopped.countDown();
            worker.stop();
        }

        void join() {
            try {
                thread.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public synchronized boolean isRunning() {
        return !running.isEmpty();
    }

    /** A web server stops before the workers drain, so that the process takes no requests meanwhile. */
    @Override
    public int getPhase() {
        return SmartLifecycle.DEFAULT_PHASE - 4096;
    }

    private static Handler observed(Handler handler, WorkerObserver.Of observer) {
        return job -> {
            observer.begins(job);
            long start = System.nanoTime();
            try {
                return handler.handle(job);
            } finally {
                observer.ran(job, Duration.ofNanos(System.nanoTime() - start));
            }
        };
    }

    private Handler inTransaction(String queue, Handler handler) {
        if (transactions == null) {
            throw new IllegalStateException("the worker of queue " + queue + " is transactional, and there is not one transaction manager");
        }
        return job -> {
            TransactionStatus status;
            try {
                status = transactions.getTransaction(new DefaultTransactionDefinition());
            } catch (TransactionException e) { // its handler was not called: no attempt is spent
                LOG.warn("the transaction of " + job + " of queue " + queue + " cannot begin; it runs again in a second: " + e);
                return Outcome.snooze(Duration.ofSeconds(1));
            }
            try {
                Outcome outcome = handler.handle(job);
                if (outcome != null && !outcome.endsJob()) {
                    return outcome;
                }
                penstock.queue(queue).ack(job.lease());
                transactions.commit(status);
                return Outcome.settled();
            } finally {
                rollBack(status);
            }
        };
    }

    /** Rolls back what has not been committed. An error does not change how the job ended: without a commit the server rolls back. */
    private void rollBack(TransactionStatus status) {
        try {
            if (!status.isCompleted()) {
                transactions.rollback(status);
            }
        } catch (TransactionException e) {
            LOG.debug("cannot roll back", e);
        }
    }
}
