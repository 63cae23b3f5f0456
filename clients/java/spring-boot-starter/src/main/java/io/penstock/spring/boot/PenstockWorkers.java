package io.penstock.spring.boot;

import io.penstock.Handler;
import io.penstock.Outcome;
import io.penstock.Penstock;
import io.penstock.Worker;
import java.util.List;
import org.springframework.context.SmartLifecycle;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.TransactionStatus;
import org.springframework.transaction.support.DefaultTransactionDefinition;

/** Starts the workers with the application, and drains them before the beans that they use are gone. */
class PenstockWorkers implements SmartLifecycle {
    private final Penstock penstock;
    private final List<PenstockWorker> workers;
    private final PlatformTransactionManager transactions;
    private List<Worker> running = List.of();

    PenstockWorkers(Penstock penstock, List<PenstockWorker> workers, PlatformTransactionManager transactions) {
        this.penstock = penstock;
        this.workers = workers;
        this.transactions = transactions;
    }

    @Override
    public synchronized void start() {
        running = workers.stream().map(w -> penstock.worker(w.queue(), w.transactional() ? inTransaction(w) : w.handler(), w.options()).start()).toList();
    }

    @Override
    public synchronized void stop() {
        running.forEach(Worker::stop);
        running.forEach(Worker::close);
        running = List.of();
    }

    @Override
    public synchronized boolean isRunning() {
        return !running.isEmpty();
    }

    private Handler inTransaction(PenstockWorker worker) {
        if (transactions == null) {
            throw new IllegalStateException("the worker of queue " + worker.queue() + " is transactional, and there is not one transaction manager");
        }
        return job -> {
            TransactionStatus status = transactions.getTransaction(new DefaultTransactionDefinition());
            try {
                Outcome outcome = worker.handler().handle(job);
                if (outcome != null && !outcome.endsJob()) {
                    return outcome;
                }
                penstock.queue(worker.queue()).ack(job.lease());
                transactions.commit(status);
                return Outcome.settled();
            } finally {
                if (!status.isCompleted()) {
                    transactions.rollback(status);
                }
            }
        };
    }
}
