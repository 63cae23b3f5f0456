package io.penstock.spring.boot;

import io.penstock.Penstock;
import io.penstock.spring.SpringTransaction;
import java.util.Map;
import javax.sql.DataSource;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.transaction.PlatformTransactionManager;

/** A {@link Penstock} that writes in the transaction of the caller's {@code @Transactional}, and the workers that are beans. */
@AutoConfiguration(after = DataSourceAutoConfiguration.class)
@ConditionalOnSingleCandidate(DataSource.class)
public class PenstockAutoConfiguration {
    @Bean
    @ConditionalOnMissingBean
    Penstock penstock(DataSource dataSource, @Value("${penstock.schema:penstock}") String schema) {
        return SpringTransaction.penstock(dataSource).schema(schema);
    }

    @Bean
    PenstockWorkers penstockWorkers(Penstock penstock, ObjectProvider<PenstockWorker> workers, ObjectProvider<PlatformTransactionManager> transactions,
        @Value("${penstock.fail-fast:false}") boolean failFast) {
        return new PenstockWorkers(penstock, workers.orderedStream().toList(), transactions.getIfUnique(), failFast);
    }

    /** With Actuator on the classpath, its health lists the queues whose workers do not work. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(HealthIndicator.class)
    static class Health {
        @Bean
        @ConditionalOnMissingBean(name = "penstockHealthIndicator")
        HealthIndicator penstockHealthIndicator(PenstockWorkers workers) {
            return () -> {
                Map<String, RuntimeException> troubles = workers.troubles();
                var health = troubles.isEmpty() ? org.springframework.boot.actuate.health.Health.up() : org.springframework.boot.actuate.health.Health.down();
                troubles.forEach((queue, trouble) -> health.withDetail(queue, String.valueOf(trouble.getMessage())));
                return health.build();
            };
        }
    }
}
