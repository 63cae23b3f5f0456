package io.penstock;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import javax.sql.DataSource;

/** The schema, as penstock migrate makes it: schema.sql in the jar is what penstock migrate --sql prints, see schema.sh. */
final class Schema {
    private static final Pattern SECTION = Pattern.compile("\n    -- version (\\d+) of the schema\n");
    private static final String FUNCTIONS = "\n    -- the functions of the schema\n";
    private static final Pattern HASH = Pattern.compile("insert into _functions \\(hash\\) values \\('(\\w+)'\\)");
    private static final Pattern LOCK = Pattern.compile("perform (pg_advisory_xact_lock\\(.*\\));");

    private final String text;
    private final long newest;

    Schema() {
        try (InputStream in = Schema.class.getResourceAsStream("schema.sql")) {
            if (in == null) {
                throw new SchemaException("this jar has no schema.sql (run: penstock migrate)", null);
            }
            text = new String(in.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new SchemaException("schema.sql cannot be read", e);
        }
        newest = SECTION.matcher(text).results().mapToLong(m -> Long.parseLong(m.group(1))).max().orElseThrow();
    }

    /** Makes the schema, or brings it up to date. A newer one is left alone. Others who do the same at the same time wait. */
    void migrate(DataSource dataSource) {
        try (Connection connection = dataSource.getConnection()) {
            boolean autoCommit = connection.getAutoCommit();
            connection.setAutoCommit(false);
            try (Statement statement = connection.createStatement()) {
                statement.setEscapeProcessing(false);
                statement.execute("select " + found(LOCK));
                long version = version(connection);
                if (version < newest || version == newest && !Execute.on(connection).execute("select hash from penstock._functions").get(0)[0].equals(found(HASH))) {
                    statement.execute(from(version));
                }
                connection.commit();
            } finally {
                connection.rollback(); // nothing, after the commit
                connection.setAutoCommit(autoCommit);
            }
        } catch (SQLException e) {
            throw PenstockException.ofMigration(e);
        }
    }

    private static long version(Connection connection) throws SQLException {
        Execute execute = Execute.on(connection);
        boolean there = (Boolean) execute.execute("select to_regclass('penstock._migration') is not null").get(0)[0];
        return there ? (Long) execute.execute("select coalesce(max(version_id), 0) from penstock._migration").get(0)[0] : 0;
    }

    private String found(Pattern pattern) {
        return pattern.matcher(text).results().findFirst().orElseThrow().group(1);
    }

    /** The statement that migrates from a version: the beginning, the changes of later versions, and the functions. */
    String from(long version) {
        List<MatchResult> sections = new ArrayList<>(SECTION.matcher(text).results().toList());
        if (version != 0 && sections.stream().noneMatch(s -> s.group(1).equals(Long.toString(version)))) {
            throw new SchemaException("the schema is version " + version + ", which this jar does not lead on from (run: penstock migrate)", null);
        }
        int functions = text.indexOf(FUNCTIONS);
        int begin = sections.stream().filter(s -> Long.parseLong(s.group(1)) > version).mapToInt(MatchResult::start).findFirst().orElse(functions);
        String start = text.substring(0, sections.get(0).start()).replace("if version <> 0 then", "if version <> " + version + " then");
        return start.replace("leads on from version 0'", "leads on from version " + version + "'") + text.substring(begin);
    }
}
