import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.AclDeleteResult.AclBindingDeleteResult;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;

/** An authorizer that acts on the names of resources, keeps ACLs itself, and prints the questions that it gets. */
public final class AccessRules implements Authorizer {
    private static final List<AclBinding> ACLS = new CopyOnWriteArrayList<>();
    private String greeting;

    @Override
    public void configure(Map<String, ?> settings) {
        greeting = (String) settings.get("rules.greeting");
    }

    @Override
    public Map<Endpoint, ? extends CompletionStage<Void>> start(AuthorizerServerInfo server) {
        Map<Endpoint, CompletableFuture<Void>> futures = new HashMap<>();
        for (Endpoint endpoint : server.endpoints()) {
            boolean isEarly = server.earlyStartListeners().contains(endpoint.listenerName().get());
            System.out.println("AccessRules started: node " + server.brokerId() + " of "
                + server.clusterResource().clusterId() + ", " + endpoint.listenerName().get() + " "
                + endpoint.securityProtocol() + " early " + isEarly);
            CompletableFuture<Void> ready = new CompletableFuture<>();
            ready.completeOnTimeout(null, isEarly ? 0 : 300, TimeUnit.MILLISECONDS);
            futures.put(endpoint, ready);
        }
        return futures;
    }

    @Override
    public List<AuthorizationResult> authorize(AuthorizableRequestContext context, List<Action> actions) {
        String api = ApiKeys.forId(context.requestType()).name;
        List<String> questions = new ArrayList<>();
        for (Action action : actions) {
            questions.add(action.operation() + ":" + action.resourcePattern() + ":" + action.resourceReferenceCount() + ":"
                + action.logIfAllowed() + ":" + action.logIfDenied());
        }
        System.out.println("asked by " + context.principal() + " " + context.clientAddress().getHostAddress() + " "
            + context.listenerName() + " " + context.securityProtocol() + " " + context.clientId() + ": " + api + " v"
            + context.requestVersion() + " " + String.join("; ", questions));
        List<AuthorizationResult> results = new ArrayList<>();
        for (Action action : actions) {
            String name = action.resourcePattern().name();
            if (name.startsWith("broken")) {
                throw new IllegalStateException("the rules are broken");
            }
            if (name.startsWith("policy")) {
                throw new PolicyViolationException(greeting + ": not " + name);
            }
            if (name.startsWith("deadly")) {
                Runtime.getRuntime().halt(3);
            }
            if (name.startsWith("slow")) {
                pause();
            }
            results.add(name.startsWith("closed") ? AuthorizationResult.DENIED : AuthorizationResult.ALLOWED);
        }
        return results;
    }

    @Override
    public AuthorizationResult authorizeByResourceType(
        AuthorizableRequestContext context, AclOperation operation, ResourceType type
    ) {
        System.out.println("asked by type: " + ApiKeys.forId(context.requestType()).name + " v"
            + context.requestVersion() + " " + operation + " " + type);
        return AuthorizationResult.DENIED;
    }

    @Override
    public List<? extends CompletionStage<AclCreateResult>> createAcls(
        AuthorizableRequestContext context, List<AclBinding> bindings
    ) {
        List<CompletableFuture<AclCreateResult>> results = new ArrayList<>();
        for (AclBinding binding : bindings) {
            CompletableFuture<AclCreateResult> result = new CompletableFuture<>();
            if (binding.pattern().name().startsWith("refused")) {
                result.complete(new AclCreateResult(new InvalidRequestException(greeting + ": no " + binding)));
            } else {
                ACLS.add(binding);
                result.completeOnTimeout(AclCreateResult.SUCCESS, 50, TimeUnit.MILLISECONDS);
            }
            results.add(result);
        }
        return results;
    }

    @Override
    public List<? extends CompletionStage<AclDeleteResult>> deleteAcls(
        AuthorizableRequestContext context, List<AclBindingFilter> filters
    ) {
        Map<AclBindingFilter, CompletableFuture<AclDeleteResult>> results = new LinkedHashMap<>();
        for (AclBindingFilter filter : filters) {
            List<AclBindingDeleteResult> removed = new ArrayList<>();
            for (AclBinding binding : ACLS) {
                if (!filter.matches(binding)) {
                    continue;
                }
                if (binding.pattern().name().startsWith("kept")) {
                    removed.add(new AclBindingDeleteResult(binding, new InvalidRequestException(greeting + ": kept")));
                } else {
                    removed.add(new AclBindingDeleteResult(binding));
                    ACLS.remove(binding);
                }
            }
            results.put(filter, CompletableFuture.completedFuture(new AclDeleteResult(removed)));
        }
        return new ArrayList<>(results.values());
    }

    @Override
    public Iterable<AclBinding> acls(AclBindingFilter filter) {
        return ACLS.stream().filter(filter::matches).toList();
    }

    private static void pause() {
        try {
            Thread.sleep(1_500);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void close() {
        System.out.println("AccessRules closed");
    }
}
