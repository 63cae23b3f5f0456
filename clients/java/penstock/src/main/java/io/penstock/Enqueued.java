package io.penstock;

/** What became of a job: its id for life; of a duplicate, for which nothing was written, the id of the one that came first. */
public record Enqueued(long id, boolean deduplicated) {}
