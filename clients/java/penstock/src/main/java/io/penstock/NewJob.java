package io.penstock;

import java.time.Instant;
import java.util.Map;

/**
 * A job to enqueue. The kind says which handler takes it. At most one job of a key runs at a time, in order. Priorities go from -16 (first)
 * to 15 (last). Within the queue's window, a second job with the same dedupKey is not enqueued. docs/guides/queues.md says more.
 */
public record NewJob(byte[] payload, String kind, String key, String groupKey, int priority, Instant notBefore, String dedupKey, Map<String, String> headers) {
    public static NewJob of(byte[] payload) {
        return new NewJob(payload, null, null, null, 0, null, null, null);
    }

    /** The text as UTF-8. */
    public static NewJob of(String payload) {
        return of(Values.utf8("payload", payload));
    }

    /** 1 to 100 bytes without control characters, or "" for none. {@link Handler#byKind} gives the job to the handler of its kind. */
    public NewJob kind(String kind) {
        return new NewJob(payload, kind, key, groupKey, priority, notBefore, dedupKey, headers);
    }

    public NewJob key(String key) {
        return new NewJob(payload, kind, key, groupKey, priority, notBefore, dedupKey, headers);
    }

    public NewJob groupKey(String groupKey) {
        return new NewJob(payload, kind, key, groupKey, priority, notBefore, dedupKey, headers);
    }

    public NewJob priority(int priority) {
        return new NewJob(payload, kind, key, groupKey, priority, notBefore, dedupKey, headers);
    }

    public NewJob notBefore(Instant notBefore) {
        return new NewJob(payload, kind, key, groupKey, priority, notBefore, dedupKey, headers);
    }

    public NewJob dedupKey(String dedupKey) {
        return new NewJob(payload, kind, key, groupKey, priority, notBefore, dedupKey, headers);
    }

    public NewJob headers(Map<String, String> headers) {
        return new NewJob(payload, kind, key, groupKey, priority, notBefore, dedupKey, headers);
    }
}
