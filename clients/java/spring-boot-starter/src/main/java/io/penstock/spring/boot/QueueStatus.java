package io.penstock.spring.boot;

import java.sql.SQLException;
import java.util.Map;
import javax.sql.DataSource;
import org.springframework.dao.DataAccessException;
import org.springframework.jdbc.core.JdbcTemplate;

/** The jobs of a queue by state, as penstock.queue_status counts them. */
final class QueueStatus {
    private static final String DENIED = "the role of the DataSource may not see this queue (run: penstock queue grant QUEUE ROLE --operate)";

    private final JdbcTemplate template;
    private final String status;

    QueueStatus(DataSource dataSource, PenstockProperties properties) {
        this.template = new JdbcTemplate(dataSource);
        this.status = "select ready, running, delayed, waiting, dead, cast(extract(epoch from oldest) as float8) as oldest_ready_seconds from \""
            + properties.schema().replace("\"", "\"\"") + "\".queue_status(?)";
    }

    /** By the names of the columns. The error's message, if there is one, is for the user. */
    Map<String, Object> of(String queue) {
        try {
            return template.queryForMap(status, queue);
        } catch (DataAccessException e) {
            boolean denied = e.getMostSpecificCause() instanceof SQLException cause && "42501".equals(cause.getSQLState());
            throw new IllegalStateException(denied ? DENIED.replace("QUEUE", word(queue)) : String.valueOf(e.getMostSpecificCause().getMessage()), e);
        }
    }

    /** A name as one word of a shell. */
    static String word(String name) {
        return name.matches("[A-Za-z0-9_.:][A-Za-z0-9_.:-]*") ? name : "'" + name.replace("'", "'\\''") + "'";
    }
}
