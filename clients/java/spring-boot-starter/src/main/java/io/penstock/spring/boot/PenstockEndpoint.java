package io.penstock.spring.boot;

import java.sql.SQLException;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.sql.DataSource;
import org.springframework.boot.actuate.endpoint.annotation.Endpoint;
import org.springframework.boot.actuate.endpoint.annotation.ReadOperation;
import org.springframework.boot.actuate.endpoint.annotation.Selector;
import org.springframework.dao.DataAccessException;
import org.springframework.jdbc.core.JdbcTemplate;

/** Actuator's endpoint penstock: the queues of this application, with their jobs by state and their workers. */
@Endpoint(id = "penstock")
class PenstockEndpoint {
    private static final String DENIED = "the role of the DataSource may not see this queue (run: penstock queue grant QUEUE ROLE --operate)";

    private final PenstockWorkers workers;
    private final JdbcTemplate template;
    private final String status;

    PenstockEndpoint(PenstockWorkers workers, DataSource dataSource, PenstockProperties properties) {
        this.workers = workers;
        this.template = new JdbcTemplate(dataSource);
        this.status = "select ready, running, delayed, waiting, dead, cast(extract(epoch from oldest) as float8) as oldest_ready_seconds from \""
            + properties.schema().replace("\"", "\"\"") + "\".queue_status(?)";
    }

    @ReadOperation
    public Map<String, Object> queues() {
        Map<String, Object> all = new LinkedHashMap<>();
        workers.queues().forEach(queue -> all.put(queue, queue(queue)));
        return Map.of("queues", all);
    }

    /** One queue, also one whose workers run elsewhere. */
    @ReadOperation
    public Map<String, Object> queue(@Selector String queue) {
        Map<String, Object> one = new LinkedHashMap<>();
        try {
            one.put("jobs", template.queryForMap(status, queue));
        } catch (DataAccessException e) {
            boolean denied = e.getMostSpecificCause() instanceof SQLException cause && "42501".equals(cause.getSQLState());
            one.put("error", denied ? DENIED.replace("QUEUE", word(queue))
                : String.valueOf(e.getMostSpecificCause().getMessage()));
        }
        one.put("worker", workers.state(queue));
        return one;
    }

    /** A name as one word of a shell. */
    private static String word(String name) {
        return name.matches("[A-Za-z0-9_.:][A-Za-z0-9_.:-]*") ? name : "'" + name.replace("'", "'\\''") + "'";
    }
}
