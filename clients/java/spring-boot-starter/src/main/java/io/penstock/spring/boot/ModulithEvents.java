package io.penstock.spring.boot;

import io.penstock.Message;
import io.penstock.Penstock;
import java.util.LinkedHashMap;
import java.util.Map;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.context.ApplicationListener;
import org.springframework.context.PayloadApplicationEvent;
import org.springframework.context.expression.BeanFactoryResolver;
import org.springframework.expression.spel.support.StandardEvaluationContext;
import org.springframework.modulith.events.EventExternalizationConfiguration;
import org.springframework.modulith.events.support.BrokerRouting;

/**
 * Publishes the events that Spring Modulith externalizes to an outbox, when they are published and in the transaction of their publisher.
 * Modulith's own listeners for brokers begin after that transaction.
 */
final class ModulithEvents implements ApplicationListener<PayloadApplicationEvent<?>> {
    private final EventExternalizationConfiguration externalization;
    private final StandardEvaluationContext expressions = new StandardEvaluationContext();
    private final Penstock penstock;
    private final PenstockJson json;
    private final String outbox;

    ModulithEvents(EventExternalizationConfiguration externalization, BeanFactory beans, Penstock penstock, PenstockJson json, String outbox) {
        this.externalization = externalization;
        this.expressions.setBeanResolver(new BeanFactoryResolver(beans));
        this.penstock = penstock;
        this.json = json;
        this.outbox = outbox;
    }

    @Override
    public void onApplicationEvent(PayloadApplicationEvent<?> published) {
        Object event = published.getPayload();
        if (!externalization.supports(event)) {
            return;
        }
        Object mapped = externalization.map(event);
        BrokerRouting routing = BrokerRouting.of(externalization.determineTarget(event), expressions);
        Map<String, String> headers = new LinkedHashMap<>();
        externalization.getHeadersFor(event).forEach((name, value) -> headers.put(name, String.valueOf(value)));
        Message message = mapped instanceof byte[] bytes ? Message.of(bytes) : mapped instanceof String text ? Message.of(text) : json.message(mapped);
        penstock.publish(outbox, message.topic(routing.getTarget(event)).key(routing.getKey(event)).headers(headers));
    }
}
