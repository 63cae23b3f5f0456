package io.penstock;

import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;

/** Handlers by kind, and what becomes of a job that has none of them. */
final class Kinds {
    private static final Duration PAUSE = Duration.ofSeconds(10);
    private static final Duration LIMIT = Duration.ofHours(1);

    private Kinds() {}

    static <H> Map<String, H> checked(Map<String, H> handlers) {
        if (handlers.isEmpty()) {
            throw new FieldException("handlers", "are none, expected one or more");
        }
        handlers.keySet().forEach(Values::kind);
        return Map.copyOf(handlers);
    }

    /** Another worker may have a handler, a newer version perhaps. Pauses vary, so that jobs that came together do not return together. */
    static Outcome unknown(Job job) {
        if (job.createdAt().isBefore(Instant.now().minus(LIMIT))) {
            return Outcome.deadLetter("no handler for kind \"" + job.kind() + "\"");
        }
        long ms = PAUSE.toMillis();
        return Outcome.snooze(Duration.ofMillis(ms - ms / 8 + ThreadLocalRandom.current().nextLong(ms / 4 + 1)));
    }
}
