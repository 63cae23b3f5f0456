package io.penstock.spring.boot;

import java.util.LinkedHashMap;
import java.util.Map;
import javax.sql.DataSource;
import org.springframework.boot.actuate.endpoint.annotation.Endpoint;
import org.springframework.boot.actuate.endpoint.annotation.ReadOperation;
import org.springframework.boot.actuate.endpoint.annotation.Selector;

/** Actuator's endpoint penstock: the queues of this application, with their jobs by state and their workers. */
@Endpoint(id = "penstock")
class PenstockEndpoint {
    private final PenstockWorkers workers;
    private final QueueStatus status;

    PenstockEndpoint(PenstockWorkers workers, DataSource dataSource, PenstockProperties properties) {
        this.workers = workers;
        this.status = new QueueStatus(dataSource, properties);
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
            one.put("jobs", status.of(queue));
        } catch (IllegalStateException e) {
            one.put("error", e.getMessage());
        }
        one.put("worker", workers.state(queue));
        return one;
    }
}
