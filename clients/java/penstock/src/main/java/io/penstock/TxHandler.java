package io.penstock;

import java.sql.Connection;

/** Does one job within a transaction, which it must not end. Any outcome but done and cancelled rolls it back. */
@FunctionalInterface
public interface TxHandler {
    Outcome handle(Connection tx, Job job) throws Exception;
}
