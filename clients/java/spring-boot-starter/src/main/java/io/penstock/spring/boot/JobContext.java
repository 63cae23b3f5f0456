package io.penstock.spring.boot;

import io.penstock.Handler;
import io.penstock.Job;
import org.slf4j.MDC;
import org.springframework.util.ClassUtils;

/** Each line that a handler logs has its job, where the application has SLF4J: in the MDC, as penstock.queue, penstock.kind and penstock.job. */
final class JobContext {
    private static final boolean THERE = ClassUtils.isPresent("org.slf4j.MDC", JobContext.class.getClassLoader());

    private JobContext() {}

    static Handler around(String queue, Handler handler) {
        return !THERE ? handler : job -> {
            put(queue, job);
            try {
                return handler.handle(job);
            } finally {
                remove();
            }
        };
    }

    private static void put(String queue, Job job) {
        MDC.put("penstock.queue", queue);
        MDC.put("penstock.kind", job.kind());
        MDC.put("penstock.job", Long.toString(job.id()));
    }

    private static void remove() {
        MDC.remove("penstock.queue");
        MDC.remove("penstock.kind");
        MDC.remove("penstock.job");
    }
}
