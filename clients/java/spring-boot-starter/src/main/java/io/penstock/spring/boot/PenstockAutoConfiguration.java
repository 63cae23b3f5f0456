package io.penstock.spring.boot;

import io.micrometer.core.instrument.MeterRegistry;
import io.penstock.Penstock;
import io.penstock.spring.SpringTransaction;
import java.util.Map;
import javax.sql.DataSource;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.boot.actuate.autoconfigure.endpoint.condition.ConditionalOnAvailableEndpoint;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.sql.init.dependency.DatabaseInitializationDependencyConfigurer;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.modulith.events.EventExternalizationConfiguration;
import org.springframework.modulith.events.support.BrokerRouting;
import org.springframework.transaction.PlatformTransactionManager;

/** A {@link Penstock} that writes in the transaction of the caller's {@code @Transactional}, and the workers that are beans. */
@AutoConfiguration(afterName = {"org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration", "org.springframework.boot.jdbc.autoconfigure.DataSourceAutoConfiguration"})
@ConditionalOnSingleCandidate(DataSource.class)
@EnableConfigurationProperties(PenstockProperties.class)
@Import(DatabaseInitializationDependencyConfigurer.class)
public class PenstockAutoConfiguration {
    @Bean
    @ConditionalOnMissingBean
    Penstock penstock(DataSource dataSource, PenstockProperties properties) {
        return SpringTransaction.penstock(dataSource).schema(properties.schema());
    }

    @Bean
    PenstockWorkers penstockWorkers(Penstock penstock, DataSource dataSource, PenstockProperties properties, ObjectProvider<PenstockWorker> workers, ObjectProvider<PenstockJson> json,
        ObjectProvider<PlatformTransactionManager> transactions, ObjectProvider<PenstockMigration> migration, ObjectProvider<WorkerObserver> observer,
        ConfigurableListableBeanFactory beans) {
        var methods = new HandlerMethods(beans, json.getIfAvailable());
        return new PenstockWorkers(penstock, properties, workers.orderedStream().toList(), methods, transactions.getIfUnique(), migration.getIfAvailable(),
            observer.getIfAvailable(), Pool.of(dataSource));
    }

    /** For tests. */
    @Bean
    PenstockHandlers penstockHandlers(ObjectProvider<PenstockWorker> workers, ObjectProvider<PenstockJson> json, ConfigurableListableBeanFactory beans) {
        return new PenstockHandlers(new HandlerMethods(beans, json.getIfAvailable()), workers.orderedStream().toList());
    }

    @Bean
    @ConditionalOnProperty("penstock.migrate")
    PenstockMigration penstockMigration(Penstock penstock, DataSource dataSource, PenstockProperties properties) {
        return new PenstockMigration(penstock, dataSource, properties);
    }

    /** Absent if the application has no Jackson. */
    @Bean
    @ConditionalOnMissingBean
    static PenstockJson penstockJson(BeanFactory beans, PenstockProperties properties) {
        return PenstockJson.of(beans, properties.work().strictPayloads());
    }

    /** With Spring Modulith, its externalized events go to an outbox. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(BrokerRouting.class)
    @ConditionalOnProperty("penstock.modulith.outbox")
    static class Modulith {
        @Bean
        ModulithEvents penstockModulithEvents(EventExternalizationConfiguration externalization, BeanFactory beans, Penstock penstock, PenstockJson json,
            PenstockProperties properties) {
            return new ModulithEvents(externalization, beans, penstock, json, properties.modulith().outbox());
        }
    }

    /** Without it, an application that names an outbox does not start: its events would not be published. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnMissingClass("org.springframework.modulith.events.support.BrokerRouting")
    @ConditionalOnProperty("penstock.modulith.outbox")
    static class ModulithMissing {
        ModulithMissing() {
            throw new IllegalStateException("penstock.modulith.outbox is set, and the class path lacks Spring Modulith's events: "
                + "add the dependency org.springframework.modulith:spring-modulith-events-core, or remove the property");
        }
    }

    /** With Micrometer, workers have the metrics of penstock work. Without a registry there is no such bean. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(MeterRegistry.class)
    static class Metrics {
        @Bean
        WorkerObserver penstockWorkerMeters(ObjectProvider<MeterRegistry> registry, DataSource dataSource, PenstockProperties properties) {
            MeterRegistry of = registry.getIfUnique();
            return of == null ? null : new WorkerMeters(of, new QueueStatus(dataSource, properties));
        }
    }

    /** With Actuator, /actuator/penstock shows the queues, where it is exposed. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(ConditionalOnAvailableEndpoint.class)
    static class Actuator {
        @Bean
        @ConditionalOnAvailableEndpoint(PenstockEndpoint.class)
        PenstockEndpoint penstockEndpoint(PenstockWorkers workers, DataSource dataSource, PenstockProperties properties) {
            return new PenstockEndpoint(workers, dataSource, properties);
        }
    }

    /** With Actuator, its health lists the queues whose workers do not work. */
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

    /** The same for Spring Boot 4, where health is elsewhere. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(org.springframework.boot.health.contributor.HealthIndicator.class)
    static class Health4 {
        @Bean
        @ConditionalOnMissingBean(name = "penstockHealthIndicator")
        org.springframework.boot.health.contributor.HealthIndicator penstockHealthIndicator(PenstockWorkers workers) {
            return () -> {
                Map<String, RuntimeException> troubles = workers.troubles();
                var health = troubles.isEmpty() ? org.springframework.boot.health.contributor.Health.up() : org.springframework.boot.health.contributor.Health.down();
                troubles.forEach((queue, trouble) -> health.withDetail(queue, String.valueOf(trouble.getMessage())));
                return health.build();
            };
        }
    }
}
