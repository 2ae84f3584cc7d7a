import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;

/** A config policy that acts on the values of settings, and puts its arguments into its message. */
public final class ConfigRules implements AlterConfigPolicy {
    private String greeting;

    @Override
    public void configure(Map<String, ?> settings) {
        greeting = (String) settings.get("rules.greeting");
    }

    @Override
    public void validate(RequestMetadata request) {
        Map<String, String> configs = new TreeMap<>(request.configs());
        String message = greeting + ": " + request.resource() + " " + configs;
        if (configs.containsValue("777") || request.resource().name().startsWith("kept")) {
            throw new PolicyViolationException(message);
        }
        if (configs.containsValue("778")) {
            throw new ConfigException(message);
        }
        if (configs.containsValue("779")) {
            throw new IllegalStateException("the rules are broken");
        }
    }

    @Override
    public void close() {
    }
}
