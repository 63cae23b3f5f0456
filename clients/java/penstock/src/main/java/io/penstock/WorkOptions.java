package io.penstock;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.function.BiConsumer;

/** Options of a worker. */
public final class WorkOptions {
    /**
     * How an attempt ended. FAILED: it will be tried again. LOST: its lease was lost. RELEASED: it was given back. SETTLED: the handler
     * ended it.
     */
    public enum End { DONE, FAILED, SNOOZED, DEAD, CANCELLED, LOST, SETTLED, RELEASED }

    private static final int MAX_CLAIM = 10_000;
    private static final Duration LEAST_LEASE = Duration.ofSeconds(1); // a shorter one may end before a call has extended it

    int concurrency = 10;
    int batch = 100;
    Duration lease = Duration.ofSeconds(30);
    List<String> groups = List.of(""); // none: all
    private String selected; // which of its methods has set these
    String worker = host() + "/" + ProcessHandle.current().pid();
    Duration drainTimeout = Duration.ofSeconds(10);
    BiConsumer<Job, End> onEnd = (job, end) -> {};

    /** The defaults. */
    public WorkOptions() {}

    /** A copy of others. */
    public WorkOptions(WorkOptions of) {
        concurrency = of.concurrency;
        batch = of.batch;
        lease = of.lease;
        groups = of.groups;
        selected = of.selected;
        worker = of.worker;
        drainTimeout = of.drainTimeout;
        onEnd = of.onEnd;
    }

    /** How many handlers run at a time. Default 10. */
    public WorkOptions concurrency(int concurrency) {
        this.concurrency = between("concurrency", concurrency, Integer.MAX_VALUE);
        return this;
    }

    /** The most jobs that one call claims. Default 100. */
    public WorkOptions batch(int batch) {
        this.batch = between("batch", batch, MAX_CLAIM);
        return this;
    }

    /** How long a job stays with a worker that has died, a second or more. Default 30 s. */
    public WorkOptions lease(Duration lease) {
        if (lease.compareTo(LEAST_LEASE) < 0) {
            throw new FieldException("lease", "is " + lease + ", expected a second or more");
        }
        this.lease = lease;
        return this;
    }

    /** The group to claim from. By default, jobs without a group. */
    public WorkOptions groupKey(String groupKey) {
        return select("groupKey", List.of(Values.given("groupKey", groupKey)));
    }

    /** Several groups to claim from, which take turns. */
    public WorkOptions groups(Collection<String> groups) {
        if (groups.isEmpty()) {
            throw new FieldException("groups", "are none, expected one or more (allGroups claims from all)");
        }
        return select("groups", groups);
    }

    /** Claims from every group in turn. */
    public WorkOptions allGroups() {
        return select("allGroups", List.of());
    }

    private WorkOptions select(String by, Collection<String> groups) {
        if (selected != null && !selected.equals(by)) {
            throw new FieldException(by, "is given, and " + selected + " as well: give one of groupKey, groups and allGroups");
        }
        groups.forEach(group -> Values.text("groupKey", group, 256));
        this.groups = groups.stream().distinct().sorted().toList();
        selected = by;
        return this;
    }

    /** The name that status shows. Default host/pid. */
    public WorkOptions worker(String worker) {
        Values.text("worker", worker, 256);
        this.worker = worker;
        return this;
    }

    /** How long handlers may continue when the worker stops, before they are interrupted. Default 10 s. */
    public WorkOptions drainTimeout(Duration drainTimeout) {
        if (drainTimeout.isNegative()) {
            throw new FieldException("drainTimeout", "is " + drainTimeout);
        }
        this.drainTimeout = drainTimeout;
        return this;
    }

    /** Called after the durable end of each attempt, several in the order in which they were given. It must not block. */
    public WorkOptions onEnd(BiConsumer<Job, End> onEnd) {
        this.onEnd = this.onEnd.andThen(onEnd);
        return this;
    }

    private static int between(String field, int n, int most) {
        if (n < 1 || n > most) {
            throw new FieldException(field, "is " + n + ", expected 1 to " + most);
        }
        return n;
    }

    private static String host() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException e) {
            return "?";
        }
    }
}
