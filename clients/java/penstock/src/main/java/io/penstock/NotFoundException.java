package io.penstock;

/** No such queue, outbox, inbox or schedule. */
public final class NotFoundException extends PenstockException {
    private static final long serialVersionUID = 1;

    NotFoundException(String message, Throwable cause) {
        super(message, cause);
    }
}
