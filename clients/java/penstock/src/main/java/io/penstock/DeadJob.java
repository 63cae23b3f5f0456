package io.penstock;

import java.time.Instant;
import java.util.Map;

/** A dead letter of a queue, with the error of its last attempt. */
public record DeadJob(long id, String kind, String key, String groupKey, int priority, int attempt, Instant createdAt, Instant diedAt, Map<String, String> headers,
        byte[] payload, String error) {
    /** Its id, kind, attempt and the first line of its error, as in "job 7, kind confirm, attempt 5, dead since 2026-11-30T09:00:00Z: no such user". */
    @Override
    public String toString() {
        return "job " + id + (kind.isEmpty() ? "" : ", kind " + kind) + ", attempt " + attempt + ", dead since " + diedAt + ": " + error.lines().findFirst().orElse("");
    }
}
