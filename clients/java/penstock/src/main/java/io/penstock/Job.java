package io.penstock;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** A claimed job. */
public final class Job {
    /** Why a handler should stop. */
    public enum Aborted {
        /** The job may be running elsewhere. */
        LEASE_LOST,
        /** The worker stops, and the time to drain is over. */
        STOPPING
    }

    /** Names and values in turn, so the caller need not read JSON. */
    static final String HEADERS = "case when headers is not null then array(select unnest(array[h.key, h.value]) from jsonb_each_text(headers) h) end";
    static final String COLUMNS = "id, key, group_key, priority, attempt, cast(extract(epoch from created_at) * 1000000 as bigint), " + HEADERS + ", payload";

    private final Object[] row;
    volatile Aborted aborted;

    /** The columns, and the lease and its end if it has one. */
    Job(Object[] row) {
        this.row = row;
    }

    /** Stays with the job through all its attempts. */
    public long id() {
        return (Long) row[0];
    }

    /** The kind, or "" if it has none. */
    public String kind() {
        return row[6] == null ? "" : headers().getOrDefault(Penstock.HEADER_KIND, "");
    }

    /** The key, or null if it has none. */
    public String key() {
        return (String) row[1];
    }

    /** The group, or "" if it has none. */
    public String groupKey() {
        return (String) row[2];
    }

    public int priority() {
        return ((Number) row[3]).intValue();
    }

    /** 1 on the first attempt. */
    public int attempt() {
        return ((Number) row[4]).intValue();
    }

    public Instant createdAt() {
        return time(row[5]);
    }

    public Map<String, String> headers() {
        return headers(row[6]);
    }

    public byte[] payload() {
        return (byte[]) row[7];
    }

    /** The payload as UTF-8. */
    public String text() {
        return new String(payload(), StandardCharsets.UTF_8);
    }

    /** The token of this claim; 0 for a job that was dequeued. */
    public long lease() {
        return row.length > 8 ? (Long) row[8] : 0;
    }

    public Instant leaseUntil() {
        return row.length > 8 ? time(row[9]) : createdAt();
    }

    /** Why the handler should stop, or null. Its thread is also interrupted. */
    public Aborted aborted() {
        return aborted;
    }

    static Map<String, String> headers(Object namesAndValues) {
        Map<String, String> headers = new LinkedHashMap<>();
        if (namesAndValues instanceof Object[] all) {
            for (int i = 0; i < all.length; i += 2) {
                headers.put((String) all[i], (String) all[i + 1]);
            }
        }
        return Collections.unmodifiableMap(headers);
    }

    private static Instant time(Object microseconds) {
        return Instant.EPOCH.plus((Long) microseconds, ChronoUnit.MICROS);
    }

    @Override
    public String toString() {
        return "job " + id() + ", attempt " + attempt();
    }
}
