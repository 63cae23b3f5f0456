package io.penstock.spring.boot;

import io.penstock.Handler;
import io.penstock.spring.SpringTransaction;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * The handlers of the application, by queue. A test runs a job with them in its own transaction:
 * {@code Testing.runOne(penstock, "emails", handlers.of("emails"))}.
 */
public final class PenstockHandlers {
    private final HandlerMethods methods;
    private final List<PenstockWorker> workers;

    PenstockHandlers(HandlerMethods methods, List<PenstockWorker> workers) {
        this.methods = methods;
        this.workers = workers;
    }

    /**
     * The handler of a queue: its methods with {@link PenstockHandler} by kind, or that of its {@link PenstockWorker}. It begins no transaction,
     * also where they are transactional: it runs in the caller's. One that is not transactional cannot publish or enqueue in it, as in a worker:
     * it needs {@code transactional = true}, or {@code @Transactional}. Throws an IllegalStateException if the queue has none.
     */
    public Handler of(String queue) {
        Map<String, Map<String, Handler>> found = methods.find((q, handler) -> handler, SpringTransaction::outside);
        if (found.containsKey(queue)) {
            return Handler.byKind(found.get(queue));
        }
        return workers.stream().filter(w -> w.queue().equals(queue)).map(w -> w.transactional() ? w.handler() : SpringTransaction.outside(w.handler())).findFirst().orElseThrow(() -> new IllegalStateException(
            "queue " + queue + " has no handler here: give a method of a bean @PenstockHandler(queue = \"" + queue + "\"), or make a bean PenstockWorker. There are handlers of: "
                + Stream.concat(found.keySet().stream(), workers.stream().map(PenstockWorker::queue)).toList()));
    }
}
