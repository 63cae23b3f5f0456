package io.penstock.spring.boot;

import io.penstock.GroupLimits;
import io.penstock.NewJob;
import io.penstock.Penstock;
import io.penstock.WorkOptions;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties of Penstock.
 *
 * @param schema Schema of Penstock's tables.
 * @param migrate Whether the start brings the schema up to date, and creates the queues, outboxes and inboxes that are missing. The DataSource's role must
 *     own the schema, or may create it.
 * @param queues Queues that penstock.migrate creates, as well as those of handlers here. Those of groups and schedules have to be among these, or exist.
 * @param outboxes Outboxes that penstock.migrate creates.
 * @param inboxes Consumers whose inboxes penstock.migrate creates.
 * @param groups Limits of groups, by queue and group, which penstock.migrate sets; "[*]" stands for each group without other limits.
 * @param schedules Jobs that repeat, by the names of their schedules, which penstock.migrate makes or changes.
 * @param failFast Whether the application does not start if the database cannot be reached, is not migrated or lacks a queue. Otherwise workers
 *     begin when it is there.
 * @param work Workers of methods with PenstockHandler.
 * @param modulith Events of Spring Modulith.
 */
@ConfigurationProperties("penstock")
public record PenstockProperties(@DefaultValue("penstock") String schema, @DefaultValue("false") boolean migrate, @DefaultValue List<String> queues,
    @DefaultValue List<String> outboxes, @DefaultValue List<String> inboxes, @DefaultValue Map<String, Map<String, Group>> groups, @DefaultValue Map<String, Schedule> schedules,
    @DefaultValue("false") boolean failFast, @DefaultValue Work work, @DefaultValue Modulith modulith) {
    public PenstockProperties {
        if (!migrate && !groups.isEmpty()) {
            throw new IllegalArgumentException("penstock.groups is set, and penstock.migrate is not true: set both, or set the limits with penstock queue group set QUEUE GROUP");
        }
        if (!migrate && !schedules.isEmpty()) {
            throw new IllegalArgumentException("penstock.schedules is set, and penstock.migrate is not true: set both, or make the schedules with penstock schedule set QUEUE NAME --cron TEXT");
        }
    }

    /**
     * The limits of a group.
     *
     * @param maxRunning How many of its jobs run at a time, in all processes together.
     * @param rate How many of its jobs start in the time per.
     * @param per The time of rate.
     * @param burst How many of these start at once.
     * @param weight Its share where groups take turns.
     */
    public record Group(Integer maxRunning, Integer rate, Duration per, Integer burst, Integer weight) {
        GroupLimits limits() {
            GroupLimits limits = new GroupLimits();
            if (maxRunning != null) {
                limits.maxRunning(maxRunning);
            }
            if (rate != null) {
                limits.rate(rate, per == null ? Duration.ofSeconds(1) : per);
            }
            if (burst != null) {
                limits.burst(burst);
            }
            if (weight != null) {
                limits.weight(weight);
            }
            return limits;
        }
    }

    /**
     * A job that repeats.
     *
     * @param queue The queue of the job.
     * @param cron When it is enqueued, as in "0 3 * * *" or "TZ=Europe/Berlin 0 3 * * *".
     * @param payload Its payload.
     * @param kind Its kind.
     * @param key Its key.
     * @param groupKey Its group.
     * @param priority From -16, the first, to 15.
     * @param dedupKey Its dedup key.
     * @param skipOverlap Whether no job is enqueued while the last one of the schedule has not ended.
     */
    public record Schedule(String queue, String cron, @DefaultValue("") String payload, @DefaultValue("") String kind, String key, @DefaultValue("") String groupKey, @DefaultValue("0") int priority,
        String dedupKey, @DefaultValue("false") boolean skipOverlap) {
        public Schedule {
            if (queue == null || cron == null) {
                throw new IllegalArgumentException("a schedule needs a queue and cron");
            }
        }

        void set(Penstock penstock, String name) {
            NewJob job = NewJob.of(payload).kind(kind).key(key).groupKey(groupKey).priority(priority).dedupKey(dedupKey);
            penstock.queue(queue).schedule(name, cron, job, skipOverlap);
        }
    }

    /**
     * Events of Spring Modulith.
     *
     * @param outbox Outbox that takes the events that Spring Modulith externalizes, in the transaction that publishes them. Without it they are not
     *     published.
     */
    public record Modulith(String outbox) {}

    /**
     * The options of workers.
     *
     * @param enabled Whether this process runs workers, also those that are beans of type PenstockWorker.
     * @param concurrency How many handlers of a queue run at a time. Default 10.
     * @param batch The most jobs that one call claims. Default 100.
     * @param lease How long a job stays with a worker that has died. Default 30 s.
     * @param drainTimeout How long handlers may continue when the application stops, before they are interrupted. Default 10 s.
     * @param queues Options of single queues, by their names.
     */
    public record Work(@DefaultValue("true") boolean enabled, Integer concurrency, Integer batch, Duration lease, Duration drainTimeout, @DefaultValue Map<String, Queue> queues) {
        WorkOptions of(String queue) {
            WorkOptions options = new WorkOptions();
            new Queue(concurrency, batch, lease, drainTimeout, null, null, false).to(options);
            if (queues.containsKey(queue)) {
                queues.get(queue).to(options);
            }
            return options;
        }
    }

    /**
     * The options of a queue's worker.
     *
     * @param concurrency How many handlers run at a time.
     * @param batch The most jobs that one call claims.
     * @param lease How long a job stays with a worker that has died.
     * @param drainTimeout How long handlers may continue when the application stops, before they are interrupted.
     * @param groupKey The group to claim from. By default, jobs without a group.
     * @param groups Several groups to claim from, which take turns.
     * @param allGroups Whether to claim from every group in turn.
     */
    public record Queue(Integer concurrency, Integer batch, Duration lease, Duration drainTimeout, String groupKey, List<String> groups, @DefaultValue("false") boolean allGroups) {
        public Queue {
            if ((groupKey == null ? 0 : 1) + (groups == null ? 0 : 1) + (allGroups ? 1 : 0) > 1) {
                throw new IllegalArgumentException("group-key, groups and all-groups exclude each other: set one of them");
            }
        }

        private void to(WorkOptions options) {
            if (concurrency != null) {
                options.concurrency(concurrency);
            }
            if (batch != null) {
                options.batch(batch);
            }
            if (lease != null) {
                options.lease(lease);
            }
            if (drainTimeout != null) {
                options.drainTimeout(drainTimeout);
            }
            if (groupKey != null) {
                options.groupKey(groupKey);
            }
            if (groups != null) {
                options.groups(groups);
            }
            if (allGroups) {
                options.allGroups();
            }
        }
    }
}
