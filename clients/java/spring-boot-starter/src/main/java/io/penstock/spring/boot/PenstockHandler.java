package io.penstock.spring.boot;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * A method of a bean that handles the jobs of a queue that have a kind. It takes the payload, as a String, a byte[] or anything that Jackson
 * reads, or the {@link io.penstock.Job}, or both. It returns nothing or an {@link io.penstock.Outcome}. A payload that cannot be read, or
 * has other properties than its type, makes the job a dead letter.
 */
@Documented
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
public @interface PenstockHandler {
    /** The queue. It may have placeholders: ${...}. */
    String queue();

    /** The kind; by default the method takes jobs without a kind. */
    String kind() default "";

    /** A job whose attempt of this number fails is a dead letter, unless the queue's limit comes first. 0: only the queue limits attempts. */
    int maxAttempts() default 0;

    /** The time after which the method's thread is interrupted, as in "30s" or "PT30S". It may have placeholders. A job with a timeout has that one instead. */
    String timeout() default "";

    /** The pause before the next attempt, as in "30s", in place of the queue's backoff. It may have placeholders. */
    String backoff() default "";

    /** Whether the method runs in a transaction of Spring's that also ends the job: its writes in it take effect exactly once. */
    boolean transactional() default false;
}
