package io.penstock;

/** A message, job or option that no database could carry. Nothing was written, and the transaction goes on. */
public final class FieldException extends PenstockException {
    private static final long serialVersionUID = 1;

    private final String field;

    FieldException(String field, String problem) {
        super(field + " " + problem, null);
        this.field = field;
    }

    /** The name of the argument. */
    public String field() {
        return field;
    }
}
