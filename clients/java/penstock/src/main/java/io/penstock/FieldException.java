package io.penstock;

/** A message, job or option that is invalid. Nothing was written, and the transaction can continue. */
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
