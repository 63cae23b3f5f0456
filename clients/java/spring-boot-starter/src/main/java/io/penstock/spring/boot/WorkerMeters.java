package io.penstock.spring.boot;

import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
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
                    registry.timer("penstock.worker.enqueue.to.start", tags(queue, kind(job))).record(waited.isNegative() ? Duration.ZERO : waited);
                }
            }

            @Override
            public void ran(Job job, Duration time) {
                if (starts(job)) {
                    registry.timer("penstock.worker.job.duration", tags(queue, kind(job))).record(time);
                }
            }

            @Override
            public void ended(Job job, End end) {
                count(queue, kind(job), end, 1);
            }
        };
    }

    private void count(String queue, String kind, End end, int n) {
        registry.counter("penstock.worker.ended.jobs", tags(queue, kind).and("result", end.name().toLowerCase(Locale.ROOT))).increment(n);
    }

    private static Tags tags(String queue, String kind) {
        return Tags.of("queue", queue, "kind", kind);
    }
}
