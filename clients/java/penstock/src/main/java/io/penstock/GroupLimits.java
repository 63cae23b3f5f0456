package io.penstock;

import java.time.Duration;

/** Limits of a group of a queue, for {@link Queue#setGroup}. What is not set limits nothing. */
public final class GroupLimits {
    Integer maxRunning;
    Integer rate;
    Duration per;
    Integer burst;
    Integer weight;

    /** No limits. */
    public GroupLimits() {}

    /** How many jobs of the group run at a time, in all processes together. */
    public GroupLimits maxRunning(int jobs) {
        maxRunning = positive("maxRunning", jobs);
        return this;
    }

    /** How many jobs start in that time, evenly spread. */
    public GroupLimits rate(int jobs, Duration per) {
        rate = positive("rate", jobs);
        this.per = per;
        return this;
    }

    /** How many jobs may start at once after a pause of the rate. Without it one. */
    public GroupLimits burst(int jobs) {
        burst = positive("burst", jobs);
        return this;
    }

    /** The group's share of a worker for several groups, 1 to 100. Without it 1. */
    public GroupLimits weight(int weight) {
        this.weight = positive("weight", weight);
        return this;
    }

    private static Integer positive(String field, int value) {
        if (value < 1) {
            throw new FieldException(field, "is " + value + ", expected 1 or more");
        }
        return value;
    }
}
