package io.penstock;

import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A job to enqueue. The kind says which handler takes it. At most one job of a key runs at a time, in order. Priorities go from -16 (first)
 * to 15 (last). Within the queue's window, a second job with the same dedupKey is not enqueued. Other options are headers, which the methods
 * of their names write. docs/reference/queues.md says more.
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

    /** Headers besides those that other methods have written. */
    public NewJob headers(Map<String, String> headers) {
        Map<String, String> all = new LinkedHashMap<>(headers == null ? Map.of() : headers);
        if (this.headers != null) {
            this.headers.forEach((name, value) -> {
                if (OPTIONS.contains(name)) {
                    all.putIfAbsent(name, value);
                }
            });
        }
        return new NewJob(payload, kind, key, groupKey, priority, notBefore, dedupKey, headers == null && all.isEmpty() ? null : all);
    }

    /** The queue has at most one job with it that has not ended. It is the job's key as well. Null or "" for none. */
    public NewJob uniqueKey(String uniqueKey) {
        return option(Values.HEADER_UNIQUE_KEY, Values.text("uniqueKey", uniqueKey, 1024));
    }

    /** What happens to a job that has the uniqueKey: "ignore", the default, "replace" or "debounce". */
    public NewJob onConflict(String onConflict) {
        if (onConflict != null && !List.of("ignore", "replace", "debounce").contains(onConflict)) {
            throw new FieldException("onConflict", "is " + onConflict + ", expected ignore, replace or debounce");
        }
        return option(ON_CONFLICT, onConflict);
    }

    /** How long "debounce" puts a job off at most, from its first enqueue. */
    public NewJob debounceMax(Duration debounceMax) {
        return option(DEBOUNCE_MAX, Values.seconds("debounceMax", debounceMax));
    }

    /** After how many attempts it becomes a dead letter, instead of the queue's. */
    public NewJob maxAttempts(int maxAttempts) {
        if (maxAttempts < 1 || maxAttempts > 999_999_999) {
            throw new FieldException("maxAttempts", "is " + maxAttempts + ", expected 1 to 999999999");
        }
        return option(MAX_ATTEMPTS, String.valueOf(maxAttempts));
    }

    /** How long an attempt may take. Then its handler is interrupted. If the handler then throws, the attempt has failed. */
    public NewJob timeout(Duration timeout) {
        return option(TIMEOUT, Values.seconds("timeout", timeout));
    }

    /** From then on no attempt begins, and the job ends as expired. */
    public NewJob deadline(Instant deadline) {
        String at = deadline == null ? null : Values.time("deadline", deadline.truncatedTo(ChronoUnit.MICROS));
        return option(DEADLINE, at);
    }

    /** The barrier of the queue that it holds: see {@link Penstock#barrier}. */
    public NewJob holds(long barrier) {
        return option(HOLDS, Values.barriers("holds", List.of(barrier)));
    }

    /** The barriers of the queue, up to 100, that it waits for: it runs once all are open. */
    public NewJob waitsFor(Long... barriers) {
        return option(WAITS_FOR, Values.barriers("waitsFor", List.of(barriers)));
    }

    /** What it does while a job that holds one of these is dead: "wait", the default, "run", or "cancel", which makes it a dead letter too. */
    public NewJob onDead(String onDead) {
        return option(ON_DEAD, Values.onDead(onDead));
    }

    static final String ON_CONFLICT = "penstock-on-conflict";
    static final String DEBOUNCE_MAX = "penstock-debounce-max";
    static final String MAX_ATTEMPTS = "penstock-max-attempts";
    private static final String TIMEOUT = "penstock-timeout";
    static final String DEADLINE = "penstock-deadline";
    private static final String HOLDS = "penstock-holds";
    private static final String WAITS_FOR = "penstock-waits-for";
    private static final String ON_DEAD = "penstock-on-dead";
    private static final List<String> OPTIONS = List.of(Values.HEADER_UNIQUE_KEY, ON_CONFLICT, DEBOUNCE_MAX, MAX_ATTEMPTS, TIMEOUT, DEADLINE, HOLDS, WAITS_FOR, ON_DEAD);

    private NewJob option(String name, String value) {
        Map<String, String> all = new LinkedHashMap<>(headers == null ? Map.of() : headers);
        if (value == null || value.isEmpty()) {
            all.remove(name);
        } else {
            all.put(name, value);
        }
        return new NewJob(payload, kind, key, groupKey, priority, notBefore, dedupKey, all.isEmpty() ? null : all);
    }

    /** Two jobs with the same fields are equal, also with the bytes of their payloads in different arrays. An empty kind or group is none. */
    @Override
    public boolean equals(Object other) {
        return other instanceof NewJob job && fields().equals(job.fields()) && Arrays.equals(payload, job.payload);
    }

    @Override
    public int hashCode() {
        return 31 * fields().hashCode() + Arrays.hashCode(payload);
    }

    @Override
    public String toString() {
        return "NewJob[payload=" + Values.shown(payload) + ", kind=" + kind + ", key=" + key + ", groupKey=" + groupKey + ", priority=" + priority + ", notBefore=" + notBefore
            + ", dedupKey=" + dedupKey + ", headers=" + headers + "]";
    }

    private List<Object> fields() {
        return Arrays.asList(kind == null ? "" : kind, key, groupKey == null ? "" : groupKey, priority, notBefore, dedupKey, headers);
    }
}
