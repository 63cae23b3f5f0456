package io.penstock.spring.boot;

import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.Meter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.Timer;
import io.penstock.Job;
import io.penstock.WorkOptions.End;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.springframework.jdbc.CannotGetJdbcConnectionException;

/** The metrics of workers and their queues, with the names and labels that penstock work and penstock metrics have for Prometheus. */
final class WorkerMeters implements WorkerObserver {
    /** All kinds that have no handler: a producer must not be able to make series. */
    private static final String OTHER = "other";

    private static final String ENDED = "Attempts at jobs by how they ended: done, failed (to be tried again), dead, lost (its lease), settled (by the handler), released (not begun), snoozed, cancelled.";
    private static final String START = "From when a job was enqueued, by the database's clock, to the start of its first attempt, by this machine's; a delayed job's delay is part of it.";
    private static final String DURATION = "How long handlers run.";

    /** The values of all queues are read together, for the meters of one scrape. */
    private static final Duration FRESH = Duration.ofSeconds(5);

    private final MeterRegistry registry;
    private final QueueStatus status;
    private final Set<String> told = new HashSet<>(); // queues whose status the log says to be missing
    private final List<Meter> gauges = new ArrayList<>();
    private List<String> queues = List.of();
    private Map<String, Map<String, Object>> values = Map.of();
    private Long read;

    WorkerMeters(MeterRegistry registry, QueueStatus status) {
        this.registry = registry;
        this.status = status;
    }

    @Override
    public synchronized void queues(List<String> queues) {
        this.queues = queues;
        gauges.forEach(registry::remove); // of an application that has stopped, and starts again
        gauges.clear();
        for (String queue : queues) {
            for (String state : List.of("ready", "running", "delayed", "waiting")) {
                gauges.add(Gauge.builder("penstock.queue.jobs", () -> value(queue, state)).description("Jobs by state: ready, running, delayed, waiting for another of their key.")
                    .tags("queue", queue, "state", state).register(registry));
            }
            gauges.add(Gauge.builder("penstock.queue.oldest.ready.age", () -> value(queue, "oldest_ready_seconds")).baseUnit("seconds").description("The age of the oldest ready job; 0 without one.")
                .tag("queue", queue).register(registry));
            gauges.add(Gauge.builder("penstock.queue.dead.letters", () -> value(queue, "dead")).description("Dead letters that are kept.").tag("queue", queue).register(registry));
        }
    }

    private synchronized double value(String queue, String column) {
        if (read == null || System.nanoTime() - read > FRESH.toNanos()) {
            values = readAll();
            read = System.nanoTime();
        }
        return values.containsKey(queue) ? ((Number) values.get(queue).get(column)).doubleValue() : Double.NaN;
    }

    private Map<String, Map<String, Object>> readAll() {
        Map<String, Map<String, Object>> all = new HashMap<>();
        for (String queue : queues) {
            try {
                all.put(queue, status.of(queue));
            } catch (IllegalStateException e) {
                if (told.add(queue)) {
                    PenstockWorkers.LOG.warn("the metrics of queue " + queue + " have no values: " + e.getMessage());
                }
                if (e.getCause() instanceof CannotGetJdbcConnectionException) { // the others would wait as long
                    break;
                }
            }
        }
        return all;
    }

    @Override
    public Of of(String queue, Set<String> kinds) {
        for (String kind : kinds.isEmpty() ? Set.of("") : kinds) { // from 0 on, so that the first is seen
            for (End end : End.values()) {
                count(queue, kind, end, 0);
            }
        }
        return new Of() {
            private String kind(Job job) {
                return kinds.isEmpty() ? "" : kinds.contains(job.kind()) ? job.kind() : OTHER;
            }

            /** Other jobs come back again and again, in their first attempt. */
            private boolean starts(Job job) {
                return kinds.isEmpty() || kinds.contains(job.kind());
            }

            @Override
            public void begins(Job job) {
                if (job.attempt() == 1 && starts(job)) {
                    Duration waited = Duration.between(job.createdAt(), Instant.now());
                    Timer.builder("penstock.worker.enqueue.to.start").description(START).tags(tags(queue, kind(job))).register(registry).record(waited.isNegative() ? Duration.ZERO : waited);
                }
            }

            @Override
            public void ran(Job job, Duration time) {
                if (starts(job)) {
                    Timer.builder("penstock.worker.job.duration").description(DURATION).tags(tags(queue, kind(job))).register(registry).record(time);
                }
            }

            @Override
            public void ended(Job job, End end) {
                count(queue, kind(job), end, 1);
            }
        };
    }

    private void count(String queue, String kind, End end, int n) {
        Counter.builder("penstock.worker.ended.jobs").description(ENDED).tags(tags(queue, kind).and("result", end.name().toLowerCase(Locale.ROOT))).register(registry).increment(n);
    }

    private static Tags tags(String queue, String kind) {
        return Tags.of("queue", queue, "kind", kind);
    }
}
