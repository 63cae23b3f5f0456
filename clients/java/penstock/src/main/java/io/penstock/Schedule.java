package io.penstock;

import java.time.Instant;
import java.util.Map;

/**
 * A periodic job of a queue. It runs next at the given time, unless it is paused. With skipOverlap it leaves out a time at which its last job has not ended.
 * lastJob is the id of the last job that it has made, or null.
 */
public record Schedule(String name, String cron, Instant next, boolean paused, boolean skipOverlap, Long lastJob, String kind, String key, String groupKey, int priority,
        String dedupKey, Map<String, String> headers, byte[] payload) {}
