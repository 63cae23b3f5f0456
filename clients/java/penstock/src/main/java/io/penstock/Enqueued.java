package io.penstock;

/** The result of enqueueing a job. Its id stays the same for its life. For a duplicate nothing was written, and the id is that of the first job. */
public record Enqueued(long id, boolean deduplicated) {}
