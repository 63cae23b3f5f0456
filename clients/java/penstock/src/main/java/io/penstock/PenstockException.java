package io.penstock;

import java.sql.SQLException;
import java.util.Set;
import java.util.regex.Pattern;

/** An error of Penstock. It is unchecked, so Spring rolls back. Its cause is the database's error, if there is one. */
public class PenstockException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private static final Pattern POSITION = Pattern.compile("\\R\\s*Position: \\d+|\\R\\s*Where: (?s:.*)"); // in statements and functions that the user did not write
    private static final Pattern DROPPED = Pattern.compile("could not open relation with OID|cache lookup failed for function"); // while the statement ran

    // Who calls the functions and reads the sequences of a queue or an inbox, as the schema's grant_enqueuer, grant_worker and grant_consumer say. Operators call the others.
    private static final Set<String> PRODUCES = Set.of("enqueue", "enqueue_many", "barrier", "flags", "find", "seq", "ring");
    private static final Set<String> WORKS = Set.of("take", "claim", "ack", "ready", "extend", "report", "release", "fail", "maintain", "hold_group", "maintained");
    private static final Set<String> CONSUMES = Set.of("first", "first_of", "in_order", "due", "maintain");
    private static final Pattern REFUSED = Pattern.compile("(?m)(?:^|[\\s\"'«„“])(?:dequeue_(.+?)|_(.+)\\.(\\w+))\\W*$");
    private static final Pattern MISSING_SCHEMA = Pattern.compile("schema \"(.+?)\"");
    private static final Pattern OF_OPERATORS = Pattern.compile("\\b_(queue|dead_job|sample)\\b");

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
            case "3F000", "42883" -> new SchemaException(message + " (the database is not migrated, or older than this client; run: penstock migrate" + ofSchema(message) + ")", sql);
            case "PS002" -> new SchemaException(message, sql);
            case "PS001" -> new LeaseLostException(message, sql);
            case "42P01" -> missing(message, sql);
            case "XX000" -> DROPPED.matcher(message).find() ? missing(message, sql) : new PenstockException(message, sql);
            case "42704" -> new NotFoundException(message, sql);
            case "42501" -> new PenstockException(message + (sql.getMessage().contains("\n  Hint: ") ? "" : " (" + grantOf(message) + ")"), sql);
            default -> new PenstockException(message, sql);
        };
    }

    /** The flag of penstock migrate that names the missing schema, unless it is the default one. */
    private static String ofSchema(String message) {
        var missing = MISSING_SCHEMA.matcher(message);
        return missing.find() && !missing.group(1).equals("penstock") ? " --schema '" + missing.group(1).replace("'", "'\\''") + "'" : "";
    }

    /** Says which right is missing, by what the database refuses in its message, such as the function _emails.claim of the queue emails. */
    private static String grantOf(String message) {
        var refused = REFUSED.matcher(message);
        String grant = "queue grant QUEUE ROLE with --enqueue, --work or --operate, penstock outbox grant OUTBOX ROLE --publish or penstock inbox grant CONSUMER ROLE --consume";
        if (refused.find()) {
            String of = refused.group(1) != null ? refused.group(1) : refused.group(2);
            String own = refused.group(1) != null ? "take" : refused.group(3);
            grant = of.startsWith("_inbox.") ? "inbox grant CONSUMER ROLE --" + (CONSUMES.contains(own) ? "consume" : "operate")
                : "queue grant " + (of.matches("[\\w.:-]+") ? of : "'" + of.replace("'", "'\\''") + "'") + " ROLE --" + (PRODUCES.contains(own) ? "enqueue" : WORKS.contains(own) ? "work" : "operate");
        } else if (message.contains("schedule")) {
            return "schedules need the role that owns the schema; it can run: penstock schedule set QUEUE NAME --cron TEXT";
        } else if (message.contains("create_queue")) {
            return "a queue is made by the role that owns the schema; it can run: penstock queue create NAME";
        } else if (OF_OPERATORS.matcher(message).find()) {
            grant = "queue grant QUEUE ROLE --operate";
        }
        return "the role that owns the schema can run: penstock " + grant;
    }

    private static NotFoundException missing(String message, SQLException sql) {
        return new NotFoundException(message.contains(" it with: ") ? message // with the server's hint, which knows which of them is missing
            : message + " (create it with: penstock queue create NAME, penstock outbox create NAME or penstock inbox create CONSUMER; penstock migrate comes first)", sql);
    }
}
