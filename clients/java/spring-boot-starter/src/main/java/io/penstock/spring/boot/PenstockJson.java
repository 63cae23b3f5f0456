package io.penstock.spring.boot;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.penstock.Message;
import io.penstock.NewJob;
import java.lang.reflect.Type;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.util.ClassUtils;
import tools.jackson.databind.json.JsonMapper;

/** Payloads as JSON, by the application's Jackson: version 3 if there is a bean of it, or version 2. */
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
    static PenstockJson of(BeanFactory beans) {
        ClassLoader classes = PenstockJson.class.getClassLoader();
        PenstockJson json = ClassUtils.isPresent("tools.jackson.databind.json.JsonMapper", classes) ? Jackson3.of(beans) : null;
        return json != null || !ClassUtils.isPresent("com.fasterxml.jackson.databind.ObjectMapper", classes) ? json : Jackson2.of(beans);
    }

    private static final class Jackson3 {
        static PenstockJson of(BeanFactory beans) {
            JsonMapper mapper = beans.getBeanProvider(JsonMapper.class).getIfUnique();
            return mapper == null ? null
                : new PenstockJson((payload, type) -> mapper.readValue(payload, mapper.constructType(type)), mapper::writeValueAsBytes);
        }
    }

    private static final class Jackson2 {
        static PenstockJson of(BeanFactory beans) {
            ObjectMapper mapper = beans.getBeanProvider(ObjectMapper.class).getIfUnique();
            return mapper == null ? null
                : new PenstockJson((payload, type) -> mapper.readValue(payload, mapper.constructType(type)), mapper::writeValueAsBytes);
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
