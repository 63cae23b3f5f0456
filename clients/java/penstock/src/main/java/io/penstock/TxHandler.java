package io.penstock;

import java.sql.Connection;
import java.time.Duration;
import java.util.Map;

/** Does one job within a transaction, which it must not end. Any outcome but done and cancelled rolls it back. */
@FunctionalInterface
public interface TxHandler {
    Outcome handle(Connection tx, Job job) throws Exception;

    /** Like {@link Handler#byKind(Map)}. */
    static TxHandler byKind(Map<String, TxHandler> handlers) {
        return byKind(handlers, Kinds.GIVE_UP);
    }

    /** Like {@link Handler#byKind(Map, Duration)}. */
    static TxHandler byKind(Map<String, TxHandler> handlers, Duration giveUp) {
        Kinds<TxHandler> kinds = new Kinds<>(handlers, giveUp);
        return (tx, job) -> {
            TxHandler handler = kinds.of(job);
            return handler == null ? kinds.unknown(job) : handler.handle(tx, job);
        };
    }
}
