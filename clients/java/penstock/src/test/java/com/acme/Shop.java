package com.acme;

import io.penstock.Job;
import io.penstock.Outcome;
import java.util.Map;

/** A program of other packages than Penstock's, whose handler fails. */
public final class Shop {
    private Shop() {}

    public static Outcome send(Job job) {
        Map.of("job", job).forEach((key, value) -> address());
        return null;
    }

    private static void address() {
        try {
            throw new NullPointerException("no key");
        } catch (NullPointerException e) {
            throw new IllegalStateException("no address\nof this user", e);
        }
    }
}
