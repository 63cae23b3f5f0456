package io.penstock.spring.boot;

import io.penstock.Handler;
import io.penstock.WorkOptions;

/** A bean of this type is a worker, which runs from the start of the application to its end. */
public record PenstockWorker(String queue, Handler handler, WorkOptions options, boolean transactional) {
    public PenstockWorker(String queue, Handler handler) {
        this(queue, handler, new WorkOptions(), false);
    }

    /** The handler runs in a transaction that also ends the job: its writes in it take effect exactly once. */
    public static PenstockWorker transactional(String queue, Handler handler) {
        return new PenstockWorker(queue, handler, new WorkOptions(), true);
    }

    public PenstockWorker options(WorkOptions options) {
        return new PenstockWorker(queue, handler, options, transactional);
    }
}
