package io.penstock;

import java.lang.System.Logger.Level;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Collectors;

/** Handlers by kind, and what becomes of a job that has none of them. */
final class Kinds<H> {
    private static final Duration PAUSE = Duration.ofSeconds(10); // the longest
    private static final Duration FORGET_AFTER = Duration.ofSeconds(15); // then a job that has not come back is new to the worker, up to twice that
    static final Duration GIVE_UP = Duration.ofHours(1);
    private static final int WARNINGS = 100; // of different kinds
    private static final int SHOWN = 20;
    private static final int MAX_MET = 10_000; // bounds the memory of a worker that meets many; others rest for PAUSE, and are not given up meanwhile

    /** The worker's memory of a job that it has met lately. rests: if it is met again. */
    private record Meeting(long first, boolean rests) {}

    private final Map<String, H> handlers;
    private final Duration giveUp;
    private final Set<String> warned = ConcurrentHashMap.newKeySet();
    private final Map<Long, Instant> met = new HashMap<>(); // the old jobs, with the time at which this worker first met each
    private Map<Long, Meeting> lately = new HashMap<>(); // those that it has met since turned
    private Map<Long, Meeting> before = new HashMap<>(); // and those before
    private long turned = System.nanoTime();

    Kinds(Map<String, H> handlers, Duration giveUp) {
        if (handlers.isEmpty()) {
            throw new FieldException("handlers", "are none, expected one or more");
        }
        handlers.keySet().forEach(Values::kind);
        this.handlers = Map.copyOf(handlers);
        this.giveUp = giveUp;
    }

    Set<String> known() {
        return handlers.keySet();
    }

    H of(Job job) {
        return handlers.get(job.kind());
    }

    /** Another worker may have a handler, a newer version perhaps. Pauses vary, so that jobs that came together do not return together. */
    Outcome unknown(Job job) {
        String kind = Values.json(job.kind());
        if (warned.size() < WARNINGS && warned.add(job.kind())) {
            Worker.LOG.log(Level.WARNING, "no handler for kind " + kind + " in this worker, which has " + shown() + ". Such jobs are left to other workers, and are dead letters after "
                + giveUp.toMinutes() + " min: add a handler, or enqueue with one of these kinds");
        }
        if (isGivenUp(job, Instant.now())) {
            return Outcome.deadLetter("no handler for kind " + kind);
        }
        long ms = rest(job, System.nanoTime()).toMillis();
        return Outcome.released(Duration.ofMillis(ms - ms / 8 + ThreadLocalRandom.current().nextLong(ms / 4 + 1)));
    }

    /**
     * For how long a job that is passed on may not be claimed. First it may be at once, and this worker leaves others the time to do so. If it meets the
     * job again, none has had room, and the job rests for half as long as the worker knows it. Then it is the others' turn again.
     */
    synchronized Duration rest(Job job, long now) {
        if (now - turned >= FORGET_AFTER.toNanos()) {
            before = lately;
            lately = new HashMap<>();
            turned = now;
        }
        if (!lately.containsKey(job.id()) && lately.size() >= MAX_MET) {
            return PAUSE;
        }
        Meeting last = lately.getOrDefault(job.id(), before.getOrDefault(job.id(), new Meeting(now, false)));
        lately.put(job.id(), new Meeting(last.first, !last.rests));
        long half = Math.max((now - last.first) / 2, 1_000_000);
        return last.rests ? Duration.ofNanos(Math.min(half, PAUSE.toNanos())) : Duration.ZERO;
    }

    /** The kinds that have a handler, for people. */
    private String shown() {
        String first = handlers.keySet().stream().sorted().limit(SHOWN).map(Values::json).collect(Collectors.joining(", "));
        return handlers.size() > SHOWN ? first + ", others" : first;
    }

    /** Jobs that have waited long, or were enqueued for later, also meet the other workers: they have half of the time from the first meeting. */
    private synchronized boolean isGivenUp(Job job, Instant now) {
        Duration half = giveUp.dividedBy(2);
        if (Duration.between(job.createdAt(), now).compareTo(half) < 0) {
            return false;
        }
        Instant first = met.get(job.id());
        if (first != null && Duration.between(first, now).compareTo(half) >= 0) {
            met.remove(job.id());
            return true;
        }
        if (first == null && met.size() >= MAX_MET) {
            met.values().removeIf(at -> Duration.between(at, now).compareTo(giveUp) > 0); // another worker has taken it
        }
        if (first == null && met.size() < MAX_MET) {
            met.put(job.id(), now);
        }
        return false;
    }
}
