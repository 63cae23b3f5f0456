package io.penstock;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/**
 * The text of an error that a job keeps. The first line is its class and message, with the innermost line of the program's code: dead letters are grouped by it. Behind
 * the rest of the message is from where that was called, and the causes. The log has the whole stack.
 */
final class Trace {
    private static final int MAX_PLACES = 10;
    private static final int MAX_CAUSES = 5;
    private static final List<String> LIBRARIES = List.of("java.", "javax.", "jdk.", "sun.", "com.sun.", "jakarta.", "kotlin.", "io.penstock.", "org.springframework.");

    private static final List<String> CALLERS = List.of(Worker.class.getName(), Testing.class.getName()); // of handlers

    private Trace() {}

    /** The error, as the log shows it too. Converting what a handler throws runs the handler's code, which may throw. */
    static String textOf(Throwable how) {
        try {
            String[] lines = how.toString().split("\\R", 2);
            String place = places(how).map(at -> " (" + at + ")").findFirst().orElse("");
            return lines[0] + place + (lines.length == 1 ? "" : "\n" + lines[1]);
        } catch (Throwable e) {
            return how.getClass().getName() + ", whose text throws " + e.getClass().getName();
        }
    }

    /** The callers and the causes, which come behind that. */
    static String behind(Throwable how) {
        List<String> lines = new ArrayList<>();
        places(how).skip(1).limit(MAX_PLACES).forEach(at -> lines.add("\n  from " + at));
        Throwable cause = how.getCause();
        for (int n = 0; cause != null && n < MAX_CAUSES; n++, cause = cause.getCause()) {
            lines.add("\ncaused by " + textOf(cause).lines().findFirst().orElse(""));
        }
        return String.join("", lines);
    }

    /**
     * The lines of the program's code in a stack, the innermost first. Its code is in the packages of the handler, which is next to Penstock's own lines: no
     * list has the names of all libraries.
     */
    private static Stream<String> places(Throwable how) {
        List<StackTraceElement> own = Stream.of(how.getStackTrace()).takeWhile(at -> !CALLERS.contains(at.getClassName()))
            .filter(at -> LIBRARIES.stream().noneMatch(at.getClassName()::startsWith) && !at.getClassName().contains("$$")).toList();
        if (own.isEmpty()) {
            return Stream.of(how.getStackTrace()).limit(1).map(Trace::shown);
        }
        String packages = packagesOf(own.get(own.size() - 1));
        return own.stream().filter(at -> packagesOf(at).equals(packages)).map(Trace::shown);
    }

    /** The first two names of its package, as in com.acme. */
    private static String packagesOf(StackTraceElement at) {
        String[] names = at.getClassName().split("\\.", 3);
        return names.length < 3 ? "" : names[0] + "." + names[1];
    }

    private static String shown(StackTraceElement at) {
        String method = at.getMethodName().replaceFirst("^lambda\\$(.*)\\$\\d+$", "$1");
        return at.getFileName() + ":" + at.getLineNumber() + " in " + method;
    }
}
