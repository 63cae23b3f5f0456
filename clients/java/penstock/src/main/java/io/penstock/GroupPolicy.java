package io.penstock;

import java.time.Duration;
import java.time.Instant;

/**
 * The policy of a group of a queue, or of "*", and how long the group is held, why. What is null limits nothing. tokens is how many jobs may start now, if
 * it has a rate.
 */
public record GroupPolicy(String groupKey, Integer maxRunning, Integer rate, Duration per, Integer burst, Integer weight, Integer tokens, Instant heldUntil, String reason) {}
