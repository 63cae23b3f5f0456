package io.penstock;

/** The lease has ended, or the job was settled or cancelled: it may be running elsewhere. */
public final class LeaseLostException extends PenstockException {
    private static final long serialVersionUID = 1;

    LeaseLostException(String message, Throwable cause) {
        super(message, cause);
    }
}
