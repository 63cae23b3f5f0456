package io.penstock;

import java.time.Instant;

/**
 * Where a job is: ready, delayed, waiting (for barriers, or for a job of its key that failed), running, dead or done.
 *
 * @param key null: none
 * @param attempt how many have begun
 * @param claimedAt when the last attempt began, of a running or done job; otherwise null
 * @param until when a delayed job is due, or the lease of a running one ends; otherwise null
 * @param endedAt when it was done, or died; otherwise null
 * @param worker of a running or done job; otherwise null
 * @param error of the last failed attempt; null: none has failed
 * @param report the handler's last report, as JSON; null: none
 */
public record FoundJob(long id, String state, String kind, String key, String groupKey, int priority, int attempt, Instant createdAt, Instant claimedAt, Instant until,
        Instant endedAt, String worker, String error, String report) {
}
