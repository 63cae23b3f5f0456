package io.penstock.spring.boot;

import io.penstock.Job;
import io.penstock.WorkOptions.End;
import java.time.Duration;
import java.util.List;
import java.util.Set;

/** What sees the jobs of workers. It does not block and does not throw. */
interface WorkerObserver {
    /** Sees the jobs of one worker. Its kinds are those that have a handler, or none if one handler takes all. */
    Of of(String queue, Set<String> kinds);

    /** The queues of this application, once they are known, and none once it stops. */
    void queues(List<String> queues);

    interface Of {
        void begins(Job job);

        void ran(Job job, Duration time);

        void ended(Job job, End end);
    }
}
