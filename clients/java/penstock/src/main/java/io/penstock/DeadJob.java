package io.penstock;

import java.time.Instant;
import java.util.Map;

/** A dead letter of a queue, with the error of its last attempt. */
public record DeadJob(long id, String kind, String key, String groupKey, int priority, int attempt, Instant createdAt, Instant diedAt, Map<String, String> headers,
        byte[] payload, String error) {}
