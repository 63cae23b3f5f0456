package io.penstock;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Messages and jobs of one transaction that wait to be written together. Payloads and headers are copied. Not safe for several threads. */
public final class Buffer {
    private final Penstock penstock;
    private final int at;
    private final Map<String, List<Message>> messages = new LinkedHashMap<>();
    private final Map<String, List<NewJob>> jobs = new LinkedHashMap<>();
    private int count;

    Buffer(Penstock penstock, int at) {
        this.penstock = penstock;
        this.at = at;
    }

    /** Takes a message. Throws a FieldException for one that no database could carry. */
    public void publish(String outbox, Message message) {
        Values.row(Values.given("message", message));
        Message kept = new Message(message.payload().clone(), message.id(), message.key(), message.topic(), copy(message.headers()));
        messages.computeIfAbsent(outbox, name -> new ArrayList<>()).add(kept);
        taken();
    }

    /** Takes a job. */
    public void enqueue(String queue, NewJob job) {
        Values.row(Values.given("job", job));
        NewJob kept = new NewJob(job.payload().clone(), job.kind(), job.key(), job.groupKey(), job.priority(), job.notBefore(), job.dedupKey(), copy(job.headers()));
        jobs.computeIfAbsent(queue, name -> new ArrayList<>()).add(kept);
        taken();
    }

    private static Map<String, String> copy(Map<String, String> headers) {
        return headers == null ? null : new LinkedHashMap<>(headers);
    }

    private void taken() {
        if (++count >= at) {
            flush();
        }
    }

    /** Writes the messages and jobs that were taken. */
    public void flush() {
        messages.forEach(penstock::publishMany);
        jobs.forEach(penstock::enqueueMany);
        messages.clear();
        jobs.clear();
        count = 0;
    }
}
