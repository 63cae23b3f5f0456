package io.penstock;

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
}
