package io.penstock.spring.boot;

import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.Timer;
import io.penstock.Job;
import io.penstock.WorkOptions.End;
import java.time.Duration;
import java.time.Instant;
import java.util.Locale;
import java.util.Set;

/** The metrics of workers, with the names and labels that penstock work has for Prometheus. */
final class WorkerMeters implements WorkerObserver {
    /** All kinds that have no handler: a producer must not be able to make series. */
    private static final String OTHER = "other";

    private static final String ENDED = "Attempts at jobs by how they ended: done, failed (to be tried again), dead, lost (its lease), settled (by the handler), released (not begun), snoozed, cancelled.";
    private static final String START = "From when a job was enqueued, by the database's clock, to the start of its first attempt, by this machine's; a delayed job's delay is part of it.";
    private static final String DURATION = "How long handlers run.";

    private final MeterRegistry registry;

    WorkerMeters(MeterRegistry registry) {
        this.registry = registry;
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
