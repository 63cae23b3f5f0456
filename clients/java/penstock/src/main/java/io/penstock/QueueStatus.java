package io.penstock;

import java.time.Duration;

/**
 * How many jobs of a queue are where: waiting for barriers, or for another job of their key. dead are its dead letters. oldest is how long ago the oldest
 * ready job was enqueued, zero if none is ready. expired is how many jobs have ended because their deadline had passed.
 */
public record QueueStatus(long ready, long running, long delayed, long waiting, long dead, Duration oldest, long expired) {}
