package io.penstock.spring.boot;

/** Why the application does not start, and what to do. */
final class StartException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    final String action; // or null

    StartException(String message, String action, Throwable cause) {
        super(message, cause);
        this.action = action;
    }
}
