package org.slf4j.impl;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.List;
import org.slf4j.ILoggerFactory;
import org.slf4j.Logger;
import org.slf4j.Marker;
import org.slf4j.helpers.FormattingTuple;
import org.slf4j.helpers.MessageFormatter;
import org.slf4j.helpers.NOPLogger;
import org.slf4j.spi.LoggerFactoryBinder;

/**
 * Sends Kafka's log messages to stderr, from the level in the property `ottla.log.level`; without it, drops them.
 * The property `ottla.log.level.` with the name of a logger sets the level of that logger.
 *
 * SLF4J 1.7 finds this class by its name. Kafka's jars contain no other binding.
 */
public final class StaticLoggerBinder implements LoggerFactoryBinder {
    /** Read by SLF4J, which warns about unknown versions. */
    public static String REQUESTED_API_VERSION = "1.6.99"; // not final: the compiler must not copy it

    private static final StaticLoggerBinder SINGLETON = new StaticLoggerBinder();
    private static final List<String> LEVELS = List.of("trace", "debug", "info", "warn", "error");
    private static final String LEVEL = "ottla.log.level";
    private static final int LOWEST = levelOf(LEVEL);

    public static StaticLoggerBinder getSingleton() {
        return SINGLETON;
    }

    @Override
    public ILoggerFactory getLoggerFactory() {
        return StaticLoggerBinder::logger;
    }

    @Override
    public String getLoggerFactoryClassStr() {
        return StaticLoggerBinder.class.getName();
    }

    private static int levelOf(String property) {
        return LEVELS.indexOf(System.getProperty(property, "").toLowerCase());
    }

    private static Logger logger(String name) {
        int own = levelOf(LEVEL + "." + name);
        int lowest = own < 0 ? LOWEST : own;
        if (lowest < 0) {
            return NOPLogger.NOP_LOGGER;
        }
        Class<?>[] faces = {Logger.class};
        return (Logger) Proxy.newProxyInstance(Logger.class.getClassLoader(), faces, (proxy, method, arguments) ->
            called(name, lowest, method, arguments));
    }

    private static Object called(String name, int lowest, Method method, Object[] arguments) {
        String what = method.getName();
        if (method.getReturnType() == boolean.class) { // isWarnEnabled
            String level = what.substring("is".length(), what.length() - "Enabled".length()).toLowerCase();
            return LEVELS.indexOf(level) >= lowest;
        }
        int level = LEVELS.indexOf(what);
        if (level < 0) {
            return what.equals("hashCode") ? (Object) name.hashCode() : name; // getName, toString
        }
        if (level >= lowest) {
            print(what, name, arguments[0] instanceof Marker ? Arrays.copyOfRange(arguments, 1, arguments.length) : arguments);
        }
        return null;
    }

    private static void print(String level, String name, Object[] arguments) {
        Object[] values = arguments.length == 2 && arguments[1] instanceof Object[] many
            ? many
            : Arrays.copyOfRange(arguments, 1, arguments.length);
        FormattingTuple text = MessageFormatter.arrayFormat((String) arguments[0], values);
        synchronized (SINGLETON) {
            System.err.println(level.toUpperCase() + " " + name + ": " + text.getMessage());
            if (text.getThrowable() != null) {
                text.getThrowable().printStackTrace();
            }
        }
    }
}
