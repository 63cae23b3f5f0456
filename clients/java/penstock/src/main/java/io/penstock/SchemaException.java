package io.penstock;

/** The database is not migrated, or this client does not support its schema. */
public final class SchemaException extends PenstockException {
    private static final long serialVersionUID = 1;

    SchemaException(String message, Throwable cause) {
        super(message, cause);
    }
}
