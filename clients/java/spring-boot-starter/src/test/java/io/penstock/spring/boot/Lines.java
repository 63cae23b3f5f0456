package io.penstock.spring.boot;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.AppenderBase;
import java.util.concurrent.LinkedBlockingQueue;
import org.slf4j.LoggerFactory;

/** What Penstock logs. */
final class Lines extends AppenderBase<ILoggingEvent> implements AutoCloseable {
    private static final Logger LOGGER = (Logger) LoggerFactory.getLogger("io.penstock");

    final LinkedBlockingQueue<String> lines = new LinkedBlockingQueue<>();
    final LinkedBlockingQueue<String> levels = new LinkedBlockingQueue<>();

    /** Once Boot has set the logging up, at each start. */
    void attach() {
        start();
        LOGGER.addAppender(this);
    }

    @Override
    protected void append(ILoggingEvent line) {
        lines.add(line.getFormattedMessage());
        levels.add(line.getLevel() + " " + line.getFormattedMessage());
    }

    void await(String part) throws InterruptedException {
        while (!lines.take().contains(part)) { // the others are not of interest
        }
    }

    long count(String part) {
        return lines.stream().filter(line -> line.contains(part)).count();
    }

    @Override
    public void close() {
        LOGGER.detachAppender(this);
    }
}
