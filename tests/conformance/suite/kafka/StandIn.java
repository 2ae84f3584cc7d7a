package org.apache.kafka.common.test.junit;

import java.util.Map;

import org.mockito.Mockito;

/** Mock objects of Kafka's classes with answers for a few methods, by name; all other methods throw. */
final class StandIn {
    private StandIn() {
    }

    /** The answer of a method to its arguments. */
    @FunctionalInterface
    interface Answer {
        Object to(Object[] arguments) throws Exception;
    }

    static <T> T of(Class<T> kind, String name, Map<String, Answer> answers) {
        return Mockito.mock(kind, Mockito.withSettings().stubOnly().name(name).defaultAnswer(call -> {
            String method = call.getMethod().getName();
            if (method.equals("toString")) {
                return name;
            }
            Answer answer = answers.get(method);
            if (answer == null) {
                throw new UnsupportedOperationException(call.getMethod() + " of " + name + " in a process of its own");
            }
            return answer.to(call.getArguments());
        }));
    }
}
