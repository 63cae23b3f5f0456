package io.penstock.spring.boot;

import org.springframework.boot.diagnostics.AbstractFailureAnalyzer;
import org.springframework.boot.diagnostics.FailureAnalysis;

/** Spring Boot shows what is wrong in place of the stacks of all exceptions. */
final class StartAnalyzer extends AbstractFailureAnalyzer<StartException> {
    @Override
    protected FailureAnalysis analyze(Throwable failure, StartException cause) {
        return new FailureAnalysis(cause.getMessage(), cause.action, failure);
    }
}
