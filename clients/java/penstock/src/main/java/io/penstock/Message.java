package io.penstock;

import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * A message to publish. Messages of a key stay in order. Sinks route by the topic. Without an id it gets one that stays the same in
 * every delivery.
 */
public record Message(byte[] payload, String id, String key, String topic, Map<String, String> headers) {
    public static Message of(byte[] payload) {
        return new Message(payload, null, null, null, null);
    }

    /** The text as UTF-8. */
    public static Message of(String payload) {
        return of(Values.utf8("payload", payload));
    }

    public Message id(String id) {
        return new Message(payload, id, key, topic, headers);
    }

    public Message key(String key) {
        return new Message(payload, id, key, topic, headers);
    }

    public Message topic(String topic) {
        return new Message(payload, id, key, topic, headers);
    }

    public Message headers(Map<String, String> headers) {
        return new Message(payload, id, key, topic, headers);
    }

    /** Two messages with the same fields are equal, also with the bytes of their payloads in different arrays. */
    @Override
    public boolean equals(Object other) {
        return other instanceof Message m && fields().equals(m.fields()) && Arrays.equals(payload, m.payload);
    }

    @Override
    public int hashCode() {
        return 31 * fields().hashCode() + Arrays.hashCode(payload);
    }

    @Override
    public String toString() {
        return "Message[payload=" + Values.shown(payload) + ", id=" + id + ", key=" + key + ", topic=" + topic + ", headers=" + headers + "]";
    }

    private List<Object> fields() {
        return Arrays.asList(id, key, topic, headers);
    }
}
