package io.penstock.spring.boot;

import io.penstock.FieldException;
import io.penstock.Handler;
import io.penstock.Job;
import io.penstock.Outcome;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.lang.reflect.Type;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import org.springframework.aop.SpringProxy;
import org.springframework.aop.framework.autoproxy.AutoProxyUtils;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.core.MethodIntrospector;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.core.annotation.AnnotationUtils;
import org.springframework.util.ReflectionUtils;

/** Finds the methods with {@link PenstockHandler}, and makes handlers of them. Their beans are asked for when the first job comes. */
final class HandlerMethods {
    /** Runs a handler in a transaction that also ends the job. */
    interface Transactions {
        Handler around(String queue, Handler handler);
    }

    private final ConfigurableListableBeanFactory beans;
    private final PenstockJson json;

    HandlerMethods(ConfigurableListableBeanFactory beans, PenstockJson json) {
        this.beans = beans;
        this.json = json;
    }

    /** By queue and kind. */
    Map<String, Map<String, Handler>> find(Transactions transactions, UnaryOperator<Handler> others) {
        Map<String, Map<String, Handler>> found = new LinkedHashMap<>();
        Map<List<String>, Method> taken = new LinkedHashMap<>();
        for (String bean : beans.getBeanNamesForType(Object.class, true, false)) {
            Class<?> type = AutoProxyUtils.determineTargetClass(beans, bean);
            if (bean.startsWith("scopedTarget.") || type == null || !AnnotationUtils.isCandidateClass(type, PenstockHandler.class)) {
                continue;
            }
            Map<Method, PenstockHandler> methods = MethodIntrospector.selectMethods(type,
                (MethodIntrospector.MetadataLookup<PenstockHandler>) m -> AnnotatedElementUtils.findMergedAnnotation(m, PenstockHandler.class));
            methods.forEach((method, how) -> {
                try {
                    String queue = beans.resolveEmbeddedValue(how.queue());
                    Method other = taken.put(List.of(queue, how.kind()), method);
                    if (other != null) {
                        throw new IllegalStateException("two methods handle kind \"" + how.kind() + "\" of queue " + queue + ": " + other + " and " + method);
                    }
                    Handler handler = handler(bean, type, method);
                    found.computeIfAbsent(queue, q -> new LinkedHashMap<>()).put(how.kind(), limited(method, how, how.transactional() ? transactions.around(queue, handler) : others.apply(handler)));
                } catch (FieldException | IllegalArgumentException e) { // a limit, or a placeholder
                    throw new IllegalStateException("bean \"" + bean + "\": " + method + " has @PenstockHandler: " + e.getMessage(), e);
                }
            });
        }
        return found;
    }

    private Handler limited(Method method, PenstockHandler how, Handler handler) {
        Duration timeout = duration(method, "timeout", how.timeout());
        Handler timed = timeout == null ? handler : Handler.timeout(timeout, handler);
        Duration after = duration(method, "backoff", how.backoff());
        Handler pausing = after == null ? timed : Handler.backoff(attempt -> after, timed);
        if (how.maxAttempts() < 0) {
            throw new IllegalArgumentException("maxAttempts is " + how.maxAttempts() + ", expected 1 or more, or 0 for the queue's limit alone");
        }
        return how.maxAttempts() == 0 ? pausing : Handler.maxAttempts(how.maxAttempts(), pausing);
    }

    private Duration duration(Method method, String attribute, String text) {
        String resolved = beans.resolveEmbeddedValue(text);
        if (resolved == null || resolved.isEmpty()) {
            return null;
        }
        if (resolved.chars().allMatch(Character::isDigit)) { // Spring would take milliseconds
            throw new IllegalStateException(method + " has @PenstockHandler with " + attribute + " = \"" + resolved + "\", which has no unit: write \"" + resolved + "s\" for seconds");
        }
        try {
            return DurationStyle.detectAndParse(resolved);
        } catch (IllegalArgumentException e) {
            throw new IllegalStateException(method + " has @PenstockHandler with " + attribute + " = \"" + resolved + "\", which is not a duration, as \"30s\" is", e);
        }
    }

    private Handler handler(String bean, Class<?> type, Method method) {
        Type[] parameters = method.getGenericParameterTypes();
        long jobs = Arrays.stream(parameters).filter(Job.class::equals).count();
        if (jobs > 1 || parameters.length - jobs > 1) {
            throw new IllegalStateException(method + " has @PenstockHandler: it takes a payload, a Job, or both");
        }
        if (method.getReturnType() != void.class && method.getReturnType() != Outcome.class) {
            throw new IllegalStateException(method + " has @PenstockHandler: it returns nothing or an Outcome");
        }
        for (Type parameter : parameters) {
            if (json == null && parameter != Job.class && parameter != String.class && parameter != byte[].class) {
                throw new IllegalStateException(method + " takes its payload from JSON, and there is no Jackson: add spring-boot-starter-json");
            }
        }
        Class<?> made = beans.getType(bean, false); // of a bean that is there, the class of its proxy
        try {
            AopUtils.selectInvocableMethod(method, made == null ? type : made);
        } catch (IllegalStateException e) { // now, and not at the first job
            throw new IllegalStateException("bean \"" + bean + "\" is a proxy, and cannot run its method " + method + " with @PenstockHandler: " + e.getMessage(), e);
        }
        if (made != null && SpringProxy.class.isAssignableFrom(made) && !Proxy.isProxyClass(made) && Modifier.isFinal(method.getModifiers())) {
            throw new IllegalStateException("bean \"" + bean + "\" is a proxy, and cannot run its method " + method + " with @PenstockHandler: it is final");
        }
        return job -> {
            Object[] arguments = new Object[parameters.length];
            for (int i = 0; i < arguments.length; i++) {
                try {
                    arguments[i] = argument(job, parameters[i]);
                } catch (Exception e) {
                    return Outcome.deadLetter("reading the payload: " + e.getMessage());
                }
            }
            Object target = beans.getBean(bean);
            try {
                Method callable = AopUtils.selectInvocableMethod(method, target.getClass());
                ReflectionUtils.makeAccessible(callable);
                return (Outcome) callable.invoke(target, arguments);
            } catch (InvocationTargetException e) {
                if (e.getCause() instanceof Error error) {
                    throw error;
                }
                throw (Exception) e.getCause();
            }
        };
    }

    private Object argument(Job job, Type type) throws Exception {
        return type == Job.class ? job : type == byte[].class ? job.payload() : type == String.class ? job.text() : json.read(job.payload(), type);
    }
}
