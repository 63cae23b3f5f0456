package io.penstock.spring.boot;

import io.penstock.Penstock;
import io.penstock.spring.SpringTransaction;
import javax.sql.DataSource;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration;
import org.springframework.context.annotation.Bean;
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
    PenstockWorkers penstockWorkers(Penstock penstock, ObjectProvider<PenstockWorker> workers, ObjectProvider<PlatformTransactionManager> transactions) {
        return new PenstockWorkers(penstock, workers.orderedStream().toList(), transactions.getIfUnique());
    }
}
