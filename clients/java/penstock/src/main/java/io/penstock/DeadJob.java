package io.penstock;

import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A dead letter of a queue, with the error of its last attempt and the last ten failures, the oldest first. */
public record DeadJob(long id, String kind, String key, String groupKey, int priority, int attempt, Instant createdAt, Instant diedAt, Map<String, String> headers,
        byte[] payload, String error, List<Failure> failures) {
    /** Attempt, microseconds and error in turn, so the caller need not read JSON. */
    static final String FAILURES = "array(select unnest(array[f ->> 'attempt', cast(cast(extract(epoch from cast(f ->> 'at' as timestamptz)) * 1000000 as bigint) as text), f ->> 'error'])"
        + " from jsonb_array_elements(failures) f)";

    /** An attempt that failed, when, and why. */
    public record Failure(int attempt, Instant at, String error) {}

    static List<Failure> failures(Object given) {
        List<Failure> failures = new ArrayList<>();
        if (given instanceof Object[] all) {
            for (int i = 0; i < all.length; i += 3) {
                failures.add(new Failure(Integer.parseInt((String) all[i]), Job.time(Long.valueOf((String) all[i + 1])), (String) all[i + 2]));
            }
        }
        return List.copyOf(failures);
    }

    /** Its id, kind, attempt and the first line of its error, as in "job 7, kind confirm, attempt 5, dead since 2026-11-30T09:00:00Z: no such user". */
    @Override
    public String toString() {
        return "job " + id + (kind.isEmpty() ? "" : ", kind " + kind) + ", attempt " + attempt + ", dead since " + diedAt + ": " + error.lines().findFirst().orElse("");
    }
}
