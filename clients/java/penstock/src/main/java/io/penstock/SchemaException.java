package io.penstock;

/** The database is not migrated, or its schema and this client do not fit each other. */
public final class SchemaException extends PenstockException {
    private static final long serialVersionUID = 1;

    SchemaException(String message, Throwable cause) {
        super(message, cause);
    }
}
