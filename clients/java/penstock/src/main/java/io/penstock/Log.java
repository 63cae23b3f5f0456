package io.penstock;

import java.text.MessageFormat;
import java.util.ResourceBundle;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.slf4j.helpers.NOPLoggerFactory;

/**
 * Writes what workers log to SLF4J, where the program has it with a provider. System.Logger is java.util.logging by default, and at SIGTERM that closes
 * its handlers while workers still drain.
 */
final class Log implements System.Logger {
    private static final String NAME = "io.penstock";

    private final Logger to;

    private Log(Logger to) {
        this.to = to;
    }

    static System.Logger get() {
        try {
            if (!(LoggerFactory.getILoggerFactory() instanceof NOPLoggerFactory)) {
                return new Log(LoggerFactory.getLogger(NAME));
            }
        } catch (LinkageError e) { // the program has no SLF4J
        }
        return System.getLogger(NAME);
    }

    @Override
    public String getName() {
        return NAME;
    }

    @Override
    public boolean isLoggable(Level level) {
        return switch (level) {
            case OFF -> false;
            case ERROR -> to.isErrorEnabled();
            case WARNING -> to.isWarnEnabled();
            case INFO -> to.isInfoEnabled();
            case DEBUG -> to.isDebugEnabled();
            case ALL, TRACE -> to.isTraceEnabled();
        };
    }

    @Override
    public void log(Level level, ResourceBundle bundle, String message, Throwable thrown) {
        switch (level) {
            case OFF -> { }
            case ERROR -> to.error(message, thrown);
            case WARNING -> to.warn(message, thrown);
            case INFO -> to.info(message, thrown);
            case DEBUG -> to.debug(message, thrown);
            case ALL, TRACE -> to.trace(message, thrown);
        }
    }

    @Override
    public void log(Level level, ResourceBundle bundle, String format, Object... values) {
        if (isLoggable(level)) {
            log(level, bundle, values == null || values.length == 0 ? format : MessageFormat.format(format, values), (Throwable) null);
        }
    }
}
