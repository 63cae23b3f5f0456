package io.penstock.spring.boot;

import io.penstock.FieldException;
import io.penstock.GroupLimits;
import io.penstock.NewJob;
import io.penstock.Penstock;
import io.penstock.WorkOptions;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
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
 * @param queueSettings Settings of queues, by their names, which penstock.migrate applies.
 * @param groups Limits of groups, by queue and group, which penstock.migrate sets; "[*]" stands for each group without other limits.
 * @param schedules Jobs that repeat, by the names of their schedules, which penstock.migrate makes or changes.
 * @param failFast Whether the application does not start if the database cannot be reached, is not migrated or lacks a queue. Otherwise workers
 *     begin when it is there.
 * @param work Workers of methods with PenstockHandler.
 * @param modulith Events of Spring Modulith.
 */
@ConfigurationProperties(value = "penstock", ignoreUnknownFields = false)
public record PenstockProperties(@DefaultValue("penstock") String schema, @DefaultValue("false") boolean migrate, @DefaultValue List<String> queues,
    @DefaultValue List<String> outboxes, @DefaultValue List<String> inboxes, @DefaultValue Map<String, Settings> queueSettings,
    @DefaultValue Map<String, Map<String, Group>> groups, @DefaultValue Map<String, Schedule> schedules,
    @DefaultValue("false") boolean failFast, @DefaultValue Work work, @DefaultValue Modulith modulith) {
    public PenstockProperties {
        if (!migrate && !queueSettings.isEmpty()) {
            throw new IllegalArgumentException("penstock.queue-settings is set, and penstock.migrate is not true: set both, move penstock.queue-settings to the profile that migrates, or change the queue with penstock queue set QUEUE");
        }
        if (!migrate && !groups.isEmpty()) {
            throw new IllegalArgumentException("penstock.groups is set, and penstock.migrate is not true: set both, move penstock.groups to the profile that migrates, or set the limits with penstock queue group set QUEUE GROUP");
        }
        if (!migrate && !schedules.isEmpty()) {
            throw new IllegalArgumentException("penstock.schedules is set, and penstock.migrate is not true: set both, move penstock.schedules to the profile that migrates, or make the schedules with penstock schedule set QUEUE NAME --cron TEXT");
        }
    }

    /**
     * The settings of a queue. One that is not set stays as it is in the database.
     *
     * @param ordering The order of a queue that is new: fifo, or lifo. The start fails if the queue has another one, which does not change.
     * @param maxAttempts After how many attempts a job is a dead letter.
     * @param maxRunning How many of its jobs run at a time, in all processes together. 0 lifts the limit.
     * @param rate How many of its jobs start in the time per. 0 lifts the limit.
     * @param per The time of rate.
     * @param burst How many of these start at once.
     * @param dedupWindow For how long a dedup key is remembered.
     * @param keepDone How long done jobs are kept. 0 keeps none.
     */
    public record Settings(Ordering ordering, Integer maxAttempts, Integer maxRunning, Integer rate, Duration per, Integer burst, Duration dedupWindow, Duration keepDone) {
        /** The order in which jobs of one priority begin. */
        public enum Ordering { FIFO, LIFO }

        public Settings {
            boolean limited = rate != null && rate != 0;
            if (limited != (per != null) || !limited && burst != null) {
                throw new IllegalArgumentException("rate, per and burst of a queue belong together: set rate and per, as 60 and 1m, or rate: 0 alone to lift the limit");
            }
        }

        /** The values for penstock.set_queue, behind the name. */
        Object[] values() {
            return new Object[] {maxAttempts, maxRunning, interval(dedupWindow), interval(keepDone), rate, interval(per), burst};
        }

        private static String interval(Duration time) {
            return time == null ? null : time.toString();
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
        public Group {
            if ((rate == null) != (per == null) || rate == null && burst != null) {
                throw new IllegalArgumentException("rate, per and burst of a group belong together: set rate and per, as 60 and 1m");
            }
        }

        GroupLimits limits() {
            GroupLimits limits = new GroupLimits();
            if (maxRunning != null) {
                limits.maxRunning(maxRunning);
            }
            if (rate != null) {
                limits.rate(rate, per);
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
     * @param strictPayloads Whether a payload from JSON that has a property that its handler's type lacks, or lacks one of a primitive type, makes its
     *     job a dead letter.
     * @param queues Options of single queues, by their names.
     */
    public record Work(@DefaultValue("true") boolean enabled, Integer concurrency, Integer batch, Duration lease, Duration drainTimeout, @DefaultValue("true") boolean strictPayloads,
        @DefaultValue Map<String, Queue> queues) {
        WorkOptions of(String queue) {
            WorkOptions options = new WorkOptions();
            apply("penstock.work.", new Queue(concurrency, batch, lease, drainTimeout, null, null, false), options);
            if (queues.containsKey(queue)) {
                apply("penstock.work.queues." + queue + ".", queues.get(queue), options);
            }
            return options;
        }

        private static void apply(String property, Queue of, WorkOptions options) {
            try {
                of.to(options);
            } catch (FieldException e) { // its message begins with the name of the field
                String name = e.field().replaceAll("([A-Z])", "-$1").toLowerCase(Locale.ROOT);
                throw new StartException(property + name + e.getMessage().substring(e.field().length()), "Correct the property.", e);
            }
        }

        /** Whether the worker of a queue takes jobs that have a group. */
        boolean takesGroups(String queue) {
            Queue of = queues.get(queue);
            return of != null && (of.allGroups() || of.groups() != null || of.groupKey() != null && !of.groupKey().isEmpty());
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
