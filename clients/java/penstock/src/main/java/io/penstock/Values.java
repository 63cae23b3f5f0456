package io.penstock;

import java.math.BigDecimal;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;

/** Turns messages and jobs into parameters, and throws a FieldException for one that no database could carry. */
final class Values {
    private static final int MAX_PAYLOAD = 64 << 20;
    private static final int MAX_HEADERS = 64 << 10;
    private static final int MAX_KIND = 100;
    private static final int MAX_SHOWN = 200; // bytes of a payload
    private static final Instant FIRST = Instant.parse("0001-01-01T00:00:00Z");
    private static final Instant LAST = Instant.parse("9999-12-31T23:59:59.999999Z");

    private Values() {}

    static byte[] utf8(String field, String s) {
        if (s == null) {
            throw new FieldException(field, "is null, expected a text, an empty one perhaps");
        }
        try {
            var bytes = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(s));
            return Arrays.copyOf(bytes.array(), bytes.limit());
        } catch (CharacterCodingException e) {
            throw new FieldException(field, "has half of a surrogate pair; put bytes into the payload");
        }
    }

    private static byte[] payload(byte[] payload) {
        if (payload == null) {
            throw new FieldException("payload", "is null, expected bytes, none perhaps");
        }
        if (payload.length > MAX_PAYLOAD) {
            throw new FieldException("payload", "has " + payload.length + " bytes, the limit is " + MAX_PAYLOAD + ": store it elsewhere and refer to it");
        }
        return payload;
    }

    private static int size(String field, String s, int most) {
        int size = utf8(field, s).length;
        if (size > most) {
            throw new FieldException(field, "has " + size + " bytes, the limit is " + most);
        }
        if (s.indexOf(0) >= 0) {
            throw new FieldException(field, "has a NUL, which text cannot hold");
        }
        return size;
    }

    static <T> T given(String field, T value) {
        if (value == null) {
            throw new FieldException(field, "is null");
        }
        return value;
    }

    /** The values of each of some messages or jobs. */
    static <T> List<Object[]> rows(String field, Collection<T> all, Function<T, Object[]> row) {
        List<Object[]> rows = new ArrayList<>(all.size());
        for (T one : all) {
            rows.add(row.apply(given(field + "[" + rows.size() + "]", one)));
        }
        return rows;
    }

    /** The text if a database can hold it, or null if it is empty. */
    static String text(String field, String s, int most) {
        if (s == null || s.isEmpty()) {
            return null;
        }
        size(field, s, most);
        return s;
    }

    static String textOrEmpty(String field, String s, int most) {
        return text(field, s, most) == null ? "" : s;
    }

    private static String headers(Map<String, String> headers) {
        if (headers == null || headers.isEmpty()) {
            return null;
        }
        int bytes = 0;
        StringBuilder json = new StringBuilder();
        for (var header : headers.entrySet()) {
            if (header.getKey() == null || header.getKey().isEmpty() || header.getValue() == null) {
                throw new FieldException("headers", "have one without a name or a value");
            }
            bytes += size("headers", header.getKey(), MAX_HEADERS) + size("headers", header.getValue(), MAX_HEADERS);
            json.append(json.isEmpty() ? '{' : ',');
            string(json, header.getKey());
            json.append(':');
            string(json, header.getValue());
        }
        if (bytes > MAX_HEADERS) {
            throw new FieldException("headers", "have " + bytes + " bytes together, the limit is " + MAX_HEADERS);
        }
        return json.append('}').toString();
    }

    static String json(String s) {
        StringBuilder json = new StringBuilder();
        string(json, s);
        return json.toString();
    }

    private static void string(StringBuilder json, String s) {
        json.append('"');
        s.chars().forEach(c -> {
            if (c < ' ') {
                json.append(String.format("\\u%04x", c));
            } else {
                json.append(c == '"' || c == '\\' ? "\\" : "").append((char) c);
            }
        });
        json.append('"');
    }

    /** id, key, topic, headers and payload as values for an outbox's table. */
    static Object[] row(Message m) {
        String id = text("id", m.id(), 256);
        if (hasControl(id)) {
            throw new FieldException("id", "has a control character: it travels in protocol headers");
        }
        return new Object[] {id, text("key", m.key(), 1024), textOrEmpty("topic", m.topic(), 1024), headers(m.headers()), payload(m.payload())};
    }

    private static boolean hasControl(String s) {
        return s != null && s.chars().anyMatch(c -> c < ' ' || c == 0x7f);
    }

    /** The kind if a job can have it; "" for null. */
    static String kind(String kind) {
        if (hasControl(text("kind", kind, MAX_KIND))) {
            throw new FieldException("kind", "has a control character: it is a label of metrics");
        }
        return kind == null ? "" : kind;
    }

    /** The headers that are written: those of the job, and its kind. */
    private static Map<String, String> headersWithKind(NewJob j) {
        String header = j.headers() == null ? null : j.headers().get(Penstock.HEADER_KIND);
        String kind = kind(j.kind() == null || j.kind().isEmpty() ? header : j.kind());
        if (header != null && !header.isEmpty() && !header.equals(kind)) {
            throw new FieldException("kind", "is " + kind + ", and the header " + Penstock.HEADER_KIND + " says " + header + ": give one of them");
        }
        if (kind.isEmpty() || kind.equals(header)) {
            return j.headers();
        }
        Map<String, String> all = new LinkedHashMap<>(j.headers() == null ? Map.of() : j.headers());
        all.put(Penstock.HEADER_KIND, kind);
        return all;
    }

    /** payload, key, group_key, priority, not_before, dedup_key and headers as values for enqueue_many. */
    static Object[] row(NewJob j) {
        if (j.priority() < -16 || j.priority() > 15) {
            throw new FieldException("priority", "is " + j.priority() + ", expected -16 (first) to 15 (last)");
        }
        String unique = j.headers() == null ? null : j.headers().get(HEADER_UNIQUE_KEY);
        if (unique != null && j.key() != null && !j.key().isEmpty() && !j.key().equals(unique)) {
            throw new FieldException("uniqueKey", "is " + unique + ", and the key is " + j.key() + ": leave the key out, a unique job has its unique key as key");
        }
        if (j.headers() != null && j.headers().containsKey(NewJob.ON_CONFLICT) && (unique == null || unique.isEmpty())) {
            throw new FieldException("onConflict", "is given without a uniqueKey: give both");
        }
        if (j.headers() != null && j.headers().containsKey(NewJob.DEBOUNCE_MAX) && !"debounce".equals(j.headers().get(NewJob.ON_CONFLICT))) {
            throw new FieldException("debounceMax", "is given and onConflict is not debounce: give both, or leave it out");
        }
        return new Object[] {payload(j.payload()), text("key", j.key(), 1024), textOrEmpty("groupKey", j.groupKey(), 256), j.priority(),
            time("notBefore", j.notBefore()), text("dedupKey", j.dedupKey(), 256), headers(headersWithKind(j))};
    }

    static String time(String field, Instant at) {
        if (at == null) {
            return null;
        }
        if (at.isBefore(FIRST)) {
            return FIRST.toString();
        }
        if (at.isAfter(LAST)) {
            throw new FieldException(field, "is " + at + ", the last year is 9999");
        }
        return at.toString();
    }

    static final String HEADER_UNIQUE_KEY = "penstock-unique-key";

    /** Numbers of barriers as a header carries them. */
    static String barriers(String field, List<Long> barriers) {
        if (barriers.size() > 100 || barriers.stream().anyMatch(b -> b < 1 || b >= 1_000_000_000_000_000_000L)) {
            throw new FieldException(field, "is " + barriers + ", expected up to 100 numbers that barrier has returned");
        }
        return barriers.stream().map(String::valueOf).collect(Collectors.joining(","));
    }

    static String onDead(String onDead) {
        if (onDead != null && !List.of("wait", "run", "cancel").contains(onDead)) {
            throw new FieldException("onDead", "is " + onDead + ", expected wait, run or cancel");
        }
        return onDead;
    }

    /** A time span as a header carries it, to the millisecond. */
    static String seconds(String field, Duration time) {
        if (time == null) {
            return null;
        }
        if (time.compareTo(Duration.ofMillis(1)) < 0 || time.compareTo(Duration.ofDays(366)) > 0) {
            throw new FieldException(field, "is " + time + ", expected a millisecond to a year");
        }
        return BigDecimal.valueOf(time.toMillis(), 3).stripTrailingZeros().toPlainString();
    }

    /** The array of one column of rows; null if it has only nulls and the given value. */
    static <T> T[] column(List<Object[]> rows, int column, T[] empty, Object nothing) {
        T[] values = Arrays.copyOf(empty, rows.size());
        boolean any = false;
        for (int i = 0; i < values.length; i++) {
            @SuppressWarnings("unchecked")
            T value = (T) rows.get(i)[column];
            values[i] = value;
            any |= value != null && !value.equals(nothing);
        }
        return any ? values : null;
    }

    static final String[] TEXTS = {};
    static final Integer[] INTS = {};
    static final byte[][] BYTES = {};

    /** The time as a PostgreSQL interval, rounded up, and about 95 years at most. */
    /** A time as the log has it, as in "10 s" and "0.02 s". */
    static String shown(Duration time) {
        BigDecimal seconds = BigDecimal.valueOf(time.getSeconds()).add(BigDecimal.valueOf(time.getNano(), 9)).stripTrailingZeros();
        return seconds.toPlainString() + " s";
    }

    static String interval(Duration time) {
        long most = 3_000_000_000_000_000L;
        long us = time.getSeconds() > most / 1_000_000 ? most : Math.max(0, time.getSeconds() * 1_000_000 + (time.getNano() + 999) / 1_000);
        return us + " microseconds";
    }

    /** A reason as text that every database can store, cut to some bytes. */
    static String storable(String reason, int most) {
        byte[] bytes = storable(reason).getBytes(StandardCharsets.UTF_8);
        int end = Math.min(bytes.length, most);
        while (end < bytes.length && (bytes[end] & 0xC0) == 0x80) { // within a character
            end--;
        }
        return new String(bytes, 0, end, StandardCharsets.UTF_8);
    }

    /** A reason as text that every database can store, cut to a limit. */
    static String storable(String reason) {
        String some = reason == null ? "" : reason.substring(0, Math.min(reason.length(), 4096));
        return new String(some.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8).replace('\0', '\uFFFD');
    }

    static String quoted(String name) {
        return '"' + name.replace("\"", "\"\"") + '"';
    }

    /** For people: the payload as text, or how large it is. */
    static String shown(byte[] payload) {
        if (payload == null) {
            return "null";
        }
        String text = new String(payload, StandardCharsets.UTF_8);
        return payload.length <= MAX_SHOWN && text.chars().noneMatch(c -> c == 0xFFFD || Character.isISOControl(c)) ? text : payload.length + " bytes";
    }
}
