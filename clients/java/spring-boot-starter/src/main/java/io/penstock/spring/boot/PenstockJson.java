package io.penstock.spring.boot;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import io.penstock.Message;
import io.penstock.NewJob;
import java.lang.reflect.Type;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.util.ClassUtils;
import tools.jackson.databind.json.JsonMapper;

/**
 * Payloads as JSON, by the application's Jackson: version 3 if there is a bean of it, or version 2. A handler's payload may have no property that its type
 * lacks, and must have those of primitive types, unless penstock.work.strict-payloads is false.
 */
public final class PenstockJson {
    private interface Reader {
        Object read(byte[] payload, Type type) throws Exception;
    }

    private interface Writer {
        byte[] write(Object value) throws Exception;
    }

    private final Reader reader;
    private final Writer writer;

    private PenstockJson(Reader reader, Writer writer) {
        this.reader = reader;
        this.writer = writer;
    }

    /** Returns null if the application has no Jackson. */
    static PenstockJson of(BeanFactory beans, boolean strict) {
        ClassLoader classes = PenstockJson.class.getClassLoader();
        PenstockJson json = ClassUtils.isPresent("tools.jackson.databind.json.JsonMapper", classes) ? Jackson3.of(beans, strict) : null;
        return json != null || !ClassUtils.isPresent("com.fasterxml.jackson.databind.ObjectMapper", classes) ? json : Jackson2.of(beans, strict);
    }

    private static final class Jackson3 {
        static PenstockJson of(BeanFactory beans, boolean strict) {
            JsonMapper mapper = beans.getBeanProvider(JsonMapper.class).getIfUnique();
            if (mapper == null) {
                return null;
            }
            var reader = !strict ? mapper.reader()
                : mapper.reader().with(tools.jackson.databind.DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, tools.jackson.databind.DeserializationFeature.FAIL_ON_NULL_FOR_PRIMITIVES);
            return new PenstockJson((payload, type) -> reader.forType(mapper.constructType(type)).readValue(payload), mapper::writeValueAsBytes);
        }
    }

    private static final class Jackson2 {
        static PenstockJson of(BeanFactory beans, boolean strict) {
            ObjectMapper mapper = beans.getBeanProvider(ObjectMapper.class).getIfUnique();
            if (mapper == null) {
                return null;
            }
            ObjectReader reader = !strict ? mapper.reader() : mapper.reader().with(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, DeserializationFeature.FAIL_ON_NULL_FOR_PRIMITIVES);
            return new PenstockJson((payload, type) -> reader.forType(mapper.constructType(type)).readValue(payload), mapper::writeValueAsBytes);
        }
    }

    /** A job with the value as JSON. */
    public NewJob job(Object value) {
        return NewJob.of(bytes(value));
    }

    /** A message with the value as JSON. */
    public Message message(Object value) {
        return Message.of(bytes(value));
    }

    /** Reads a payload as a handler does: that of a dead letter, or of a job or message that a test has found. */
    public <T> T read(byte[] payload, Class<T> type) {
        try {
            return type.cast(read(payload, (Type) type));
        } catch (Exception e) {
            throw new IllegalArgumentException("reading the payload: " + e.getMessage(), e);
        }
    }

    private byte[] bytes(Object value) {
        try {
            return writer.write(value);
        } catch (Exception e) {
            throw new IllegalArgumentException("writing the payload: " + e.getMessage(), e);
        }
    }

    Object read(byte[] payload, Type type) throws Exception {
        return reader.read(payload, type);
    }
}
