package io.penstock;

import java.sql.SQLException;
import java.util.regex.Pattern;

/** An error of Penstock. It is unchecked, so Spring rolls back. Its cause is the database's error, if there is one. */
public class PenstockException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private static final Pattern POSITION = Pattern.compile("\\R\\s*Position: \\d+|\\R\\s*Where: (?s:.*)"); // in statements and functions that the user did not write
    private static final Pattern DROPPED = Pattern.compile("could not open relation with OID|cache lookup failed for function"); // while the statement ran

    private final String sqlState;

    protected PenstockException(String message, Throwable cause) {
        super(message, cause);
        this.sqlState = cause instanceof SQLException e ? e.getSQLState() : null;
    }

    /** The SQLSTATE that the database returned, or null: 23514 is over a limit, 22023 an invalid argument. */
    public String sqlState() {
        return sqlState;
    }

    /** A migration needs more than rights to a queue or an outbox. */
    static RuntimeException ofMigration(SQLException e) {
        return "42501".equals(e.getSQLState()) ? new PenstockException(e.getMessage() + " (only the role that owns the schema, or may create it, can migrate; it can run: penstock migrate)", e) : of(e);
    }

    /** Returns this package's exception for a problem that callers may handle. Exceptions without an SQLException within are returned unchanged. */
    static RuntimeException of(Exception e) {
        Throwable found = e;
        for (int depth = 0; found != null && !(found instanceof SQLException) && depth < 6; depth++) {
            found = found.getCause();
        }
        if (!(found instanceof SQLException sql)) {
            return e instanceof RuntimeException already ? already : new PenstockException(e.getMessage(), e);
        }
        String message = POSITION.matcher(String.valueOf(sql.getMessage())).replaceAll("");
        return switch (sql.getSQLState() == null ? "" : sql.getSQLState()) {
            case "3F000", "42883" -> new SchemaException(message + " (the database is not migrated, or older than this client; run: penstock migrate)", sql);
            case "PS002" -> new SchemaException(message, sql);
            case "PS001" -> new LeaseLostException(message, sql);
            case "42P01" -> missing(message, sql);
            case "XX000" -> DROPPED.matcher(message).find() ? missing(message, sql) : new PenstockException(message, sql);
            case "42704" -> new NotFoundException(message, sql);
            case "42501" -> new PenstockException(message + (message.contains("schedule") ? " (schedules need the role that owns the schema; it can run: penstock schedule set QUEUE NAME --cron TEXT)"
                : " (the role that owns the schema can run: penstock queue grant QUEUE ROLE --enqueue --work, penstock outbox grant OUTBOX ROLE --publish or penstock inbox grant CONSUMER ROLE --consume)"), sql);
            default -> new PenstockException(message, sql);
        };
    }

    private static NotFoundException missing(String message, SQLException sql) {
        return new NotFoundException(message.contains(" it with: ") ? message // with the server's hint, which knows which of them is missing
            : message + " (create it with: penstock queue create NAME, penstock outbox create NAME or penstock inbox create CONSUMER; penstock migrate comes first)", sql);
    }
}
