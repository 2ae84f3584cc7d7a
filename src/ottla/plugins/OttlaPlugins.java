import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Runs the Java plug-ins of an Ottla node, which are written for Apache Kafka: policies, assignors and authorizers.
 *
 * Standard input is a socket to the node, used in both directions; output of plug-ins goes to standard error. The first
 * frame has the classes and the node's settings. Each further frame is a question for one plug-in. Each plug-in answers
 * in order in a thread of its own; an authorizer, which must be thread-safe, in several. This process ends when the node
 * does.
 *
 * Kafka's classes are looked up by name at run time: a policy does not need the jar with the assignors' interface, and
 * a missing class gives a one-line error. `values.py` describes the encoding of values.
 */
public final class OttlaPlugins {
    private static final int ANSWERED = 0;
    private static final int REFUSED = 1;
    private static final int FAILED = 2;
    private static final int FINISHING_S = 2;
    private static final int CLOSING_S = 5;
    private static final String API = "org.apache.kafka.";
    private static final Long UNKNOWN_SERVER_ERROR = -1L;

    interface Plugin extends AutoCloseable {
        String name() throws Exception;

        /** The answer, or a CompletionStage of it. */
        Object ask(Object question) throws Exception;

        default int threads() {
            return 1;
        }
    }

    /** A plug-in cannot be used; the message says why. */
    static final class Unusable extends Exception {
        Unusable(String message) {
            super(message);
        }
    }

    /** An assignor cannot compute an assignment. */
    static final class NoAssignment extends Exception {
        NoAssignment(String message) {
            super(message);
        }
    }

    /** A plug-in refused with an error of Kafka's protocol. */
    static final class Coded extends Exception {
        final List<Object> said;

        Coded(List<Object> said) {
            this.said = said;
        }
    }

    /** A plug-in failed again; only its first failure is printed with a stack trace. */
    static final class FailedAgain extends Exception {
        FailedAgain(Throwable cause) {
            super(cause.toString());
        }

        @Override
        public String toString() {
            return getMessage();
        }
    }

    private final DataInputStream in =
        new DataInputStream(new BufferedInputStream(new FileInputStream(FileDescriptor.in)));
    private final OutputStream out = new FileOutputStream(FileDescriptor.in);
    private final List<Plugin> plugins = new ArrayList<>();
    private final List<ExecutorService> threads = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        System.setIn(InputStream.nullInputStream());
        new OttlaPlugins().run();
    }

    private void run() throws Exception {
        try {
            if (load((List<?>) receive())) {
                while (true) {
                    List<?> question = (List<?>) receive();
                    int number = number(question.get(1));
                    threads.get(number).execute(() -> answer(plugins.get(number), question.get(0), question.get(2)));
                }
            }
        } catch (EOFException gone) {
            // The node stopped or was killed.
        } catch (IOException broken) {
            System.err.println("the plug-in JVM lost its node: " + broken);
        } finally {
            close();
        }
    }

    private boolean load(List<?> wanted) throws IOException {
        Map<?, ?> settings = (Map<?, ?>) wanted.get(1);
        List<Object> names = new ArrayList<>();
        for (Object each : (List<?>) wanted.get(0)) {
            String kind = (String) ((List<?>) each).get(0);
            String className = (String) ((List<?>) each).get(1);
            try {
                Plugin plugin = make(kind, className, settings);
                plugins.add(plugin);
                names.add(plugin.name());
                threads.add(Executors.newFixedThreadPool(plugin.threads(), task -> daemon(task, className)));
            } catch (Throwable problem) {
                Throwable cause = unwrapped(problem);
                String reason = reason(cause);
                if (!(cause instanceof Unusable) && !(cause instanceof NoClassDefFoundError)) {
                    cause.printStackTrace();
                }
                send(0L, REFUSED, List.of((long) threads.size(), reason));
                return false;
            }
        }
        send(0L, ANSWERED, names);
        return true;
    }

    private static Thread daemon(Runnable task, String name) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }

    private static String reason(Throwable cause) {
        if (cause instanceof Unusable) {
            return cause.getMessage();
        }
        if (cause instanceof NoClassDefFoundError) {
            String missing = String.valueOf(cause.getMessage()).replace('/', '.');
            return "it needs " + missing + ", which is not on the class path";
        }
        return "creating it failed: " + cause;
    }

    private static Plugin make(String kind, String className, Map<?, ?> settings) throws Exception {
        switch (kind) {
            case "create-topic":
                return new Policy(instance(className, API + "server.policy.CreateTopicPolicy", settings), true);
            case "alter-config":
                return new Policy(instance(className, API + "server.policy.AlterConfigPolicy", settings), false);
            case "authorizer":
                return new Authorizer(instance(className, Authorizer.API + "Authorizer", settings), settings);
            default:
                return new Assignor(instance(className, Assignor.API + "ConsumerGroupPartitionAssignor", settings));
        }
    }

    /** The code and message with which Kafka answers an exception. */
    private static List<Object> coded(Throwable cause) throws Exception {
        Class<?> type = kafka(API + "common.requests.ApiError");
        Object error = type.getMethod("fromThrowable", Throwable.class).invoke(null, cause);
        return refusal(type.getMethod("error").invoke(error), (String) type.getMethod("message").invoke(error));
    }

    private static List<Object> refusal(Object error, String message) throws Exception {
        List<Object> found = new ArrayList<>();
        found.add(((Number) error.getClass().getMethod("code").invoke(error)).longValue());
        found.add(message);
        return found;
    }

    private static Object instance(String className, String interfaceName, Map<?, ?> settings) throws Exception {
        Class<?> type;
        try {
            type = Class.forName(className);
        } catch (ClassNotFoundException missing) {
            throw new Unusable("the class is not on the class path");
        }
        if (!kafka(interfaceName).isAssignableFrom(type)) {
            throw new Unusable("the class does not implement " + interfaceName);
        }
        Constructor<?> constructor;
        try {
            constructor = type.getDeclaredConstructor();
        } catch (NoSuchMethodException missing) {
            throw new Unusable("the class has no constructor without arguments");
        }
        Object made = constructor.newInstance();
        Class<?> configurable = kafka(API + "common.Configurable");
        if (configurable.isInstance(made)) {
            configurable.getMethod("configure", Map.class).invoke(made, settings);
        }
        return made;
    }

    private static Class<?> kafka(String name) {
        try {
            return Class.forName(name);
        } catch (ClassNotFoundException missing) {
            throw new NoClassDefFoundError(name);
        }
    }

    private static Throwable unwrapped(Throwable problem) {
        boolean isWrapped = problem.getCause() != null
            && (problem instanceof InvocationTargetException || problem instanceof CompletionException);
        return isWrapped ? problem.getCause() : problem;
    }

    private void answer(Plugin plugin, Object id, Object question) {
        Object said;
        try {
            said = plugin.ask(question);
        } catch (Throwable problem) {
            answer(id, null, problem);
            return;
        }
        if (said instanceof CompletionStage) {
            ((CompletionStage<?>) said).whenComplete((result, problem) -> answer(id, result, problem));
        } else {
            answer(id, said, null);
        }
    }

    private void answer(Object id, Object result, Throwable problem) {
        Object said = result;
        int status = ANSWERED;
        if (problem != null) {
            Throwable cause = unwrapped(problem);
            status = cause instanceof NoAssignment || cause instanceof Coded ? REFUSED : FAILED;
            said = cause instanceof NoAssignment ? cause.getMessage() : cause.toString();
            if (cause instanceof Coded) {
                said = ((Coded) cause).said;
            } else if (status == FAILED && !(cause instanceof FailedAgain)) {
                cause.printStackTrace();
            }
        }
        try {
            send((Long) id, status, said);
        } catch (IOException gone) {
            // The node is gone; the reading thread notices too.
        }
    }

    private void close() {
        threads.forEach(ExecutorService::shutdownNow);
        Thread end = daemon(() -> halt(), "end");
        end.start();
        try {
            for (ExecutorService each : threads) {
                each.awaitTermination(FINISHING_S, TimeUnit.SECONDS);
            }
            for (Plugin each : plugins) {
                try {
                    each.close();
                } catch (Exception problem) {
                    unwrapped(problem).printStackTrace();
                }
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
        Runtime.getRuntime().exit(0);
    }

    private static void halt() {
        try {
            TimeUnit.SECONDS.sleep(CLOSING_S);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
        Runtime.getRuntime().halt(1);
    }

    /** Judges topics, or alterations of settings, one after the other: nothing, or a code and a message for each. */
    static final class Policy implements Plugin {
        private final Object policy;
        private final boolean isOfTopics;
        private final Method validate;
        private final Constructor<?> metadata;
        private final Class<?> resource = kafka(API + "common.config.ConfigResource");
        private final Class<?> resourceType = kafka(API + "common.config.ConfigResource$Type");

        Policy(Object policy, boolean isOfTopics) throws Exception {
            this.policy = policy;
            this.isOfTopics = isOfTopics;
            Class<?> type = kafka(API + "server.policy." + (isOfTopics ? "CreateTopicPolicy" : "AlterConfigPolicy"));
            Class<?> asked = kafka(type.getName() + "$RequestMetadata");
            validate = type.getMethod("validate", asked);
            metadata = isOfTopics
                ? asked.getConstructor(String.class, Integer.class, Short.class, Map.class, Map.class)
                : asked.getConstructor(resource, Map.class);
        }

        @Override
        public String name() {
            return "";
        }

        @Override
        public Object ask(Object questions) throws Exception {
            List<Object> verdicts = new ArrayList<>();
            for (Object each : (List<?>) questions) {
                verdicts.add(verdict((List<?>) each));
            }
            return verdicts;
        }

        private Object verdict(List<?> question) throws Exception {
            Object asked = isOfTopics ? topic(question) : alteration(question);
            try {
                validate.invoke(policy, asked);
                return null;
            } catch (InvocationTargetException problem) {
                return refusal(problem.getCause());
            }
        }

        private Object topic(List<?> question) throws Exception {
            Object partitions = question.get(1);
            Object factor = question.get(2);
            return metadata.newInstance(
                question.get(0),
                partitions == null ? null : number(partitions),
                factor == null ? null : (short) number(factor),
                question.get(3) == null ? null : assignments((Map<?, ?>) question.get(3)),
                new HashMap<>((Map<?, ?>) question.get(4))
            );
        }

        private Object alteration(List<?> question) throws Exception {
            Object type = resourceType.getMethod("forId", byte.class).invoke(null, (byte) number(question.get(0)));
            Object of = resource.getConstructor(resourceType, String.class).newInstance(type, question.get(1));
            return metadata.newInstance(of, new HashMap<>((Map<?, ?>) question.get(2)));
        }

        private static Map<Integer, List<Integer>> assignments(Map<?, ?> replicas) {
            Map<Integer, List<Integer>> found = new HashMap<>();
            replicas.forEach((partition, brokers) -> found.put(number(partition), new ArrayList<>(integers(brokers))));
            return found;
        }

        private Object refusal(Throwable cause) throws Exception {
            if (!isOfTopics && kafka(API + "common.config.ConfigException").isInstance(cause)) {
                Object error = kafka(API + "common.protocol.Errors").getField("INVALID_CONFIG").get(null);
                return OttlaPlugins.refusal(error, cause.getMessage());
            }
            List<Object> found = coded(cause);
            if (UNKNOWN_SERVER_ERROR.equals(found.get(0))) {
                cause.printStackTrace();
            }
            return found;
        }

        @Override
        public void close() throws Exception {
            ((AutoCloseable) policy).close();
        }
    }

    /**
     * Assigns partitions to the members of a group. It uses the same kinds of maps as Kafka, because the assignment may
     * depend on their order; the members arrive in that order.
     */
    static final class Assignor implements Plugin {
        static final String API = OttlaPlugins.API + "coordinator.group.api.assignor.";
        private final Object assignor;
        private final Class<?> type = kafka(API + "PartitionAssignor");
        private final Class<?> groupType = kafka(API + "GroupSpec");
        private final Class<?> topicsType = kafka(API + "SubscribedTopicDescriber");
        private final Class<?> subscriptionType = kafka(API + "MemberSubscription");
        private final Class<?> assignmentType = kafka(API + "MemberAssignment");
        private final Method assign;
        private final Method members;
        private final Method partitions;
        private final Constructor<?> uuid;
        private final Method most;
        private final Method least;

        Assignor(Object assignor) throws Exception {
            this.assignor = assignor;
            assign = type.getMethod("assign", groupType, topicsType);
            members = kafka(API + "GroupAssignment").getMethod("members");
            partitions = assignmentType.getMethod("partitions");
            Class<?> id = kafka(OttlaPlugins.API + "common.Uuid");
            uuid = id.getConstructor(long.class, long.class);
            most = id.getMethod("getMostSignificantBits");
            least = id.getMethod("getLeastSignificantBits");
        }

        @Override
        public String name() throws Exception {
            return String.valueOf(type.getMethod("name").invoke(assignor));
        }

        @Override
        public Object ask(Object question) throws Exception {
            List<?> asked = (List<?>) question;
            List<Object> ids = new ArrayList<>();
            Map<Object, Integer> counts = new HashMap<>();
            Map<Object, int[]> racks = new HashMap<>();
            for (Object each : (List<?>) asked.get(2)) {
                List<?> topic = (List<?>) each;
                Object id = id((byte[]) topic.get(0));
                ids.add(id);
                counts.put(id, number(topic.get(1)));
                racks.put(id, (int[]) topic.get(2));
            }
            Map<Object, Set<Integer>> taken = byId((Map<?, ?>) asked.get(4));
            Object group = group((List<?>) asked.get(1), ids, number(asked.get(0)) != 0, taken);
            Object topics = topics(counts, racks, (List<?>) asked.get(3));
            Object assignment;
            try {
                assignment = assign.invoke(assignor, group, topics);
            } catch (InvocationTargetException problem) {
                if (kafka(API + "PartitionAssignorException").isInstance(problem.getCause())) {
                    throw new NoAssignment(problem.getCause().getMessage());
                }
                throw problem;
            }
            return targets((Map<?, ?>) members.invoke(assignment));
        }

        private Object group(List<?> members, List<Object> ids, boolean uniform, Map<Object, Set<Integer>> taken)
            throws Exception {
            Map<Object, Object> subscriptions = new LinkedHashMap<>();
            Map<Object, Object> assignments = new HashMap<>();
            for (Object each : members) {
                List<?> member = (List<?>) each;
                Set<Object> topics = new HashSet<>();
                integers(member.get(3)).forEach(index -> topics.add(ids.get(index)));
                subscriptions.put(member.get(0), stand(subscriptionType, Map.of(
                    "instanceId", arguments -> Optional.ofNullable(member.get(1)),
                    "rackId", arguments -> Optional.ofNullable(member.get(2)),
                    "subscribedTopicIds", arguments -> topics
                )));
                assignments.put(member.get(0), assignment(byId((Map<?, ?>) member.get(4))));
            }
            Object nothing = assignment(Map.of());
            Object kind = kafka(API + "SubscriptionType").getField(uniform ? "HOMOGENEOUS" : "HETEROGENEOUS").get(null);
            return stand(groupType, Map.of(
                "memberIds", arguments -> subscriptions.keySet(),
                "subscriptionType", arguments -> kind,
                "isPartitionAssigned", arguments -> taken.getOrDefault(arguments[0], Set.of()).contains(arguments[1]),
                "isPartitionAssignable", arguments -> true,
                "memberSubscription", arguments -> {
                    Object found = subscriptions.get(arguments[0]);
                    if (found == null) {
                        throw new IllegalArgumentException("Member Id " + arguments[0] + " not found.");
                    }
                    return found;
                },
                "memberAssignment", arguments -> assignments.getOrDefault(arguments[0], nothing)
            ));
        }

        private Object topics(Map<Object, Integer> counts, Map<Object, int[]> racks, List<?> sets) {
            List<Set<Object>> known = new ArrayList<>();
            sets.forEach(each -> known.add(new LinkedHashSet<>((List<?>) each)));
            return stand(topicsType, Map.of(
                "numPartitions", arguments -> counts.getOrDefault(arguments[0], -1),
                "racksForPartition", arguments -> {
                    int[] found = racks.get(arguments[0]);
                    int partition = (Integer) arguments[1];
                    boolean isKnown = found != null && partition >= 0 && partition < found.length;
                    return isKnown ? known.get(found[partition]) : Set.of();
                }
            ));
        }

        private Object assignment(Map<Object, Set<Integer>> owned) {
            return stand(assignmentType, Map.of("partitions", arguments -> owned));
        }

        private Map<Object, Object> targets(Map<?, ?> assignment) throws Exception {
            Map<Object, Object> targets = new HashMap<>();
            for (Map.Entry<?, ?> member : assignment.entrySet()) {
                Map<Object, Object> owned = new LinkedHashMap<>();
                for (Map.Entry<?, ?> topic : ((Map<?, ?>) partitions.invoke(member.getValue())).entrySet()) {
                    ByteBuffer id = ByteBuffer.allocate(16);
                    id.putLong((Long) most.invoke(topic.getKey())).putLong((Long) least.invoke(topic.getKey()));
                    Collection<?> numbers = (Collection<?>) topic.getValue();
                    owned.put(id.array(), numbers.stream().mapToInt(each -> (Integer) each).toArray());
                }
                targets.put(member.getKey(), owned);
            }
            return targets;
        }

        private Map<Object, Set<Integer>> byId(Map<?, ?> partitions) throws Exception {
            Map<Object, Set<Integer>> partitionsById = new HashMap<>();
            for (Map.Entry<?, ?> each : partitions.entrySet()) {
                Set<Integer> numbers = new HashSet<>(integers(each.getValue()));
                partitionsById.put(id(((Key) each.getKey()).bytes), Collections.unmodifiableSet(numbers));
            }
            return Collections.unmodifiableMap(partitionsById);  // Kafka's own assignors require this
        }

        private Object id(byte[] bytes) throws Exception {
            ByteBuffer halves = ByteBuffer.wrap(bytes);
            return uuid.newInstance(halves.getLong(), halves.getLong());
        }

        @Override
        public void close() throws Exception {
            if (assignor instanceof AutoCloseable) {
                ((AutoCloseable) assignor).close();
            }
        }
    }

    /**
     * Authorizes requests. Before it has started, and on listeners for which it is not ready, questions fail.
     */
    static final class Authorizer implements Plugin {
        static final String API = OttlaPlugins.API + "server.authorizer.";
        private static final String ACL = OttlaPlugins.API + "common.acl.";
        private static final String RESOURCE = OttlaPlugins.API + "common.resource.";
        private static final int AUTHORIZE = 0;
        private static final int AUTHORIZE_ANY = 1;
        private static final int CREATE = 2;
        private static final int DELETE = 3;
        private static final int SHOW = 4;
        private static final int START = 5;
        private static final int DEFAULT_THREADS = 8;
        private final Object authorizer;
        private final int threads;
        private final Class<?> type = kafka(API + "Authorizer");
        private final Class<?> contextType = kafka(API + "AuthorizableRequestContext");
        private final Class<?> operation = kafka(ACL + "AclOperation");
        private final Class<?> permission = kafka(ACL + "AclPermissionType");
        private final Class<?> resourceType = kafka(RESOURCE + "ResourceType");
        private final Class<?> patternType = kafka(RESOURCE + "PatternType");
        private final Class<?> pattern = kafka(RESOURCE + "ResourcePattern");
        private final Class<?> patternFilter = kafka(RESOURCE + "ResourcePatternFilter");
        private final Class<?> entry = kafka(ACL + "AccessControlEntry");
        private final Class<?> entryFilter = kafka(ACL + "AccessControlEntryFilter");
        private final Class<?> binding = kafka(ACL + "AclBinding");
        private final Class<?> filter = kafka(ACL + "AclBindingFilter");
        private final Class<?> protocol = kafka(OttlaPlugins.API + "common.security.auth.SecurityProtocol");
        private final Object allowed = kafka(API + "AuthorizationResult").getField("ALLOWED").get(null);
        private final Object literal = patternType.getField("LITERAL").get(null);
        private final Constructor<?> action =
            kafka(API + "Action").getConstructor(operation, pattern, int.class, boolean.class, boolean.class);
        private final Constructor<?> principal = kafka(OttlaPlugins.API + "common.security.auth.KafkaPrincipal")
            .getConstructor(String.class, String.class, boolean.class);
        private final Method authorize = type.getMethod("authorize", contextType, List.class);
        private volatile Map<String, CompletableFuture<?>> ready;
        private volatile boolean hasFailed;

        Authorizer(Object authorizer, Map<?, ?> settings) throws Exception {
            this.authorizer = authorizer;
            Object given = settings.get("num.io.threads");
            threads = given == null ? DEFAULT_THREADS : Integer.parseInt(given.toString().trim());
            for (Class<?> each = authorizer.getClass(); each != null; each = each.getSuperclass()) {
                for (Class<?> face : each.getInterfaces()) {
                    if (face.getSimpleName().equals("ClusterMetadataAuthorizer")) {
                        throw new Unusable("it takes its ACLs from the cluster's metadata, which Ottla gives to"
                            + " org.apache.kafka.metadata.authorizer.StandardAuthorizer alone");
                    }
                }
            }
        }

        @Override
        public String name() {
            return "";
        }

        @Override
        public int threads() {
            return threads;
        }

        @Override
        public Object ask(Object question) throws Exception {
            List<?> asked = (List<?>) question;
            try {
                Object said = asked(number(asked.get(0)), asked);
                hasFailed = false;
                return said;
            } catch (InvocationTargetException problem) {
                List<Object> said = coded(problem.getCause());
                if (!UNKNOWN_SERVER_ERROR.equals(said.get(0))) {
                    throw new Coded(said);
                }
                boolean isFirst = !hasFailed;
                hasFailed = true;
                if (isFirst) {
                    throw problem;
                }
                throw new FailedAgain(problem.getCause());
            }
        }

        private Object asked(int method, List<?> asked) throws Exception {
            switch (method) {
                case AUTHORIZE:
                    return authorize(asked.get(1), (List<?>) asked.get(2));
                case AUTHORIZE_ANY: {
                    Object may = type.getMethod("authorizeByResourceType", contextType, operation, resourceType).invoke(
                        authorizer, context((List<?>) asked.get(1)), code(operation, asked.get(2)),
                        code(resourceType, asked.get(3)));
                    return may == allowed ? 1L : 0L;
                }
                case CREATE: {
                    List<Object> bindings = new ArrayList<>();
                    for (Object each : (List<?>) asked.get(2)) {
                        bindings.add(binding((List<?>) each));
                    }
                    Object made = type.getMethod("createAcls", contextType, List.class)
                        .invoke(authorizer, context((List<?>) asked.get(1)), bindings);
                    return all((List<?>) made, Authorizer::error);
                }
                case DELETE: {
                    List<Object> filters = new ArrayList<>();
                    for (Object each : (List<?>) asked.get(2)) {
                        filters.add(filter((List<?>) each));
                    }
                    Object made = type.getMethod("deleteAcls", contextType, List.class)
                        .invoke(authorizer, context((List<?>) asked.get(1)), filters);
                    return all((List<?>) made, this::deleted);
                }
                case SHOW: {
                    List<Object> found = new ArrayList<>();
                    Object shown = type.getMethod("acls", filter).invoke(authorizer, filter((List<?>) asked.get(1)));
                    for (Object each : (Iterable<?>) shown) {
                        found.add(shown(each));
                    }
                    return found;
                }
                case START:
                    return start((List<?>) asked.get(1));
                default:
                    return awaited((String) asked.get(1));
            }
        }

        private Object authorize(Object sent, List<?> actions) throws Exception {
            List<Object> asked = new ArrayList<>();
            for (Object each : actions) {
                List<?> of = (List<?>) each;
                Object on = pattern.getConstructor(resourceType, String.class, patternType)
                    .newInstance(code(resourceType, of.get(1)), of.get(2), literal);
                asked.add(action.newInstance(
                    code(operation, of.get(0)), on, number(of.get(3)), number(of.get(4)) != 0, number(of.get(5)) != 0));
            }
            List<?> results = (List<?>) authorize.invoke(authorizer, context((List<?>) sent), asked);
            return results.stream().mapToInt(each -> each == allowed ? 1 : 0).toArray();
        }

        private Object context(List<?> sent) throws Exception {
            String listener = (String) sent.get(4);
            CompletableFuture<?> isReady = ready == null ? null : ready.get(listener);
            if (ready == null || isReady != null && (!isReady.isDone() || isReady.isCompletedExceptionally())) {
                throw new FailedAgain(new IllegalStateException("it is not ready for requests on " + listener));
            }
            Object who = principal.newInstance(sent.get(0), sent.get(1), number(sent.get(2)) != 0);
            InetAddress address = InetAddress.getByName((String) sent.get(3));
            Object how = protocol.getMethod("forName", String.class).invoke(null, sent.get(5));
            return stand(contextType, Map.of(
                "principal", arguments -> who,
                "clientAddress", arguments -> address,
                "listenerName", arguments -> listener,
                "securityProtocol", arguments -> how,
                "requestType", arguments -> number(sent.get(6)),
                "requestVersion", arguments -> number(sent.get(7)),
                "clientId", arguments -> sent.get(8),
                "correlationId", arguments -> number(sent.get(9))
            ));
        }

        private Object start(List<?> sent) throws Exception {
            Map<String, Object> endpoints = new LinkedHashMap<>();
            for (Object each : (List<?>) sent.get(2)) {
                List<?> of = (List<?>) each;
                Object how = protocol.getMethod("forName", String.class).invoke(null, of.get(1));
                Object made = kafka(OttlaPlugins.API + "common.Endpoint")
                    .getConstructor(String.class, protocol, String.class, int.class)
                    .newInstance(of.get(0), how, of.get(2), number(of.get(3)));
                endpoints.put((String) of.get(0), made);
            }
            Object cluster = kafka(OttlaPlugins.API + "common.ClusterResource")
                .getConstructor(String.class).newInstance(sent.get(0));
            Set<Object> early = new LinkedHashSet<>((List<?>) sent.get(4));
            Class<?> info = kafka(API + "AuthorizerServerInfo");
            Object server = stand(info, Map.of(
                "clusterResource", arguments -> cluster,
                "brokerId", arguments -> number(sent.get(1)),
                "endpoints", arguments -> endpoints.values(),
                "interBrokerEndpoint", arguments -> endpoints.get(sent.get(3)),
                "earlyStartListeners", arguments -> early
            ));
            Map<?, ?> futures = (Map<?, ?>) type.getMethod("start", info).invoke(authorizer, server);
            Map<String, CompletableFuture<?>> found = new HashMap<>();
            endpoints.forEach((listener, endpoint) -> {
                CompletionStage<?> stage = futures == null ? null : (CompletionStage<?>) futures.get(endpoint);
                if (stage != null) {
                    found.put(listener, stage.toCompletableFuture());
                }
            });
            ready = found;
            return new ArrayList<>(found.keySet());
        }

        private Object awaited(String listener) {
            CompletableFuture<?> found = ready == null ? null : ready.get(listener);
            return found == null ? null : found.thenApply(nothing -> null);
        }

        /** What all of some stages say, when the last of them has. */
        private static CompletionStage<Object> all(List<?> stages, Reading reading) {
            List<CompletableFuture<?>> futures = new ArrayList<>();
            for (Object each : stages) {
                futures.add(((CompletionStage<?>) each).toCompletableFuture());
            }
            CompletableFuture<?>[] each = futures.toArray(new CompletableFuture<?>[0]);
            return CompletableFuture.allOf(each).thenApply(nothing -> {
                List<Object> said = new ArrayList<>();
                for (CompletableFuture<?> future : futures) {
                    try {
                        said.add(reading.of(future.join()));
                    } catch (Exception problem) {
                        throw new CompletionException(unwrapped(problem));
                    }
                }
                return said;
            });
        }

        interface Reading {
            Object of(Object result) throws Exception;
        }

        /** The code and message of a result that is an error; null for success. */
        private static Object error(Object result) throws Exception {
            Optional<?> error = (Optional<?>) result.getClass().getMethod("exception").invoke(result);
            return error.isEmpty() ? null : coded((Throwable) error.get());
        }

        private Object deleted(Object result) throws Exception {
            List<Object> found = new ArrayList<>();
            Collection<?> each = (Collection<?>) result.getClass().getMethod("aclBindingDeleteResults").invoke(result);
            for (Object one : each) {
                List<Object> of = new ArrayList<>();
                of.add(shown(one.getClass().getMethod("aclBinding").invoke(one)));
                of.add(error(one));
                found.add(of);
            }
            List<Object> said = new ArrayList<>();
            said.add(error(result));
            said.add(found);
            return said;
        }

        private Object binding(List<?> sent) throws Exception {
            Object on = pattern.getConstructor(resourceType, String.class, patternType)
                .newInstance(code(resourceType, sent.get(0)), sent.get(1), code(patternType, sent.get(2)));
            Object who = entry.getConstructor(String.class, String.class, operation, permission)
                .newInstance(sent.get(3), sent.get(4), code(operation, sent.get(5)), code(permission, sent.get(6)));
            return binding.getConstructor(pattern, entry).newInstance(on, who);
        }

        private Object filter(List<?> sent) throws Exception {
            Object on = patternFilter.getConstructor(resourceType, String.class, patternType)
                .newInstance(code(resourceType, sent.get(0)), sent.get(1), code(patternType, sent.get(2)));
            Object who = entryFilter.getConstructor(String.class, String.class, operation, permission)
                .newInstance(sent.get(3), sent.get(4), code(operation, sent.get(5)), code(permission, sent.get(6)));
            return filter.getConstructor(patternFilter, entryFilter).newInstance(on, who);
        }

        private Object shown(Object bound) throws Exception {
            Object on = binding.getMethod("pattern").invoke(bound);
            Object who = binding.getMethod("entry").invoke(bound);
            List<Object> found = new ArrayList<>();
            found.add(codeOf(pattern.getMethod("resourceType").invoke(on)));
            found.add(pattern.getMethod("name").invoke(on));
            found.add(codeOf(pattern.getMethod("patternType").invoke(on)));
            found.add(entry.getMethod("principal").invoke(who));
            found.add(entry.getMethod("host").invoke(who));
            found.add(codeOf(entry.getMethod("operation").invoke(who)));
            found.add(codeOf(entry.getMethod("permissionType").invoke(who)));
            return found;
        }

        private static Object code(Class<?> names, Object code) throws Exception {
            return names.getMethod("fromCode", byte.class).invoke(null, (byte) number(code));
        }

        private static Long codeOf(Object name) throws Exception {
            return ((Number) name.getClass().getMethod("code").invoke(name)).longValue();
        }

        @Override
        public void close() throws Exception {
            ((AutoCloseable) authorizer).close();
        }
    }

    interface Said {
        Object of(Object[] arguments) throws Exception;
    }

    /** An object of one of Kafka's interfaces, which is not known before this runs. */
    private static Object stand(Class<?> type, Map<String, Said> methods) {
        return Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, arguments) -> {
            Said said = methods.get(method.getName());
            if (said != null) {
                return said.of(arguments);
            }
            switch (method.getName()) {
                case "equals":
                    return proxy == arguments[0];
                case "hashCode":
                    return System.identityHashCode(proxy);
                case "toString":
                    return type.getSimpleName() + methods.keySet();
                default:
                    throw new UnsupportedOperationException("Ottla does not know " + method);
            }
        });
    }

    // Values: a byte for the kind, then the value. Numbers are big-endian.

    /** Bytes as a map key: arrays compare by identity. */
    record Key(byte[] bytes) {
        @Override
        public boolean equals(Object other) {
            return other instanceof Key && java.util.Arrays.equals(bytes, ((Key) other).bytes);
        }

        @Override
        public int hashCode() {
            return java.util.Arrays.hashCode(bytes);
        }
    }

    private Object receive() throws IOException {
        byte[] frame = new byte[in.readInt()];
        in.readFully(frame);
        return read(new DataInputStream(new ByteArrayInputStream(frame)));
    }

    private void send(long id, int status, Object said) throws IOException {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        DataOutputStream writer = new DataOutputStream(body);
        writer.writeInt(0);
        List<Object> answer = new ArrayList<>(List.of(id, (long) status));
        answer.add(said);
        write(writer, answer);
        byte[] frame = body.toByteArray();
        ByteBuffer.wrap(frame).putInt(frame.length - 4);
        synchronized (out) {
            out.write(frame);
        }
    }

    private static Object read(DataInputStream in) throws IOException {
        int kind = in.readUnsignedByte();
        switch (kind) {
            case 0:
                return null;
            case 1:
                return in.readLong();
            case 2:
                return new String(bytes(in), StandardCharsets.UTF_8);
            case 3:
                return bytes(in);
            case 4: {
                int[] numbers = new int[in.readInt()];
                for (int index = 0; index < numbers.length; index++) {
                    numbers[index] = in.readInt();
                }
                return numbers;
            }
            case 5: {
                List<Object> items = new ArrayList<>();
                for (int left = in.readInt(); left > 0; left--) {
                    items.add(read(in));
                }
                return items;
            }
            case 6: {
                Map<Object, Object> entries = new LinkedHashMap<>();
                for (int left = in.readInt(); left > 0; left--) {
                    Object key = read(in);
                    entries.put(key instanceof byte[] ? new Key((byte[]) key) : key, read(in));
                }
                return entries;
            }
            default:
                throw new IOException("unknown kind of value " + kind);
        }
    }

    private static byte[] bytes(DataInputStream in) throws IOException {
        byte[] found = new byte[in.readInt()];
        in.readFully(found);
        return found;
    }

    private static void write(DataOutputStream out, Object value) throws IOException {
        if (value == null) {
            out.writeByte(0);
        } else if (value instanceof Long) {
            out.writeByte(1);
            out.writeLong((Long) value);
        } else if (value instanceof String) {
            byte[] text = ((String) value).getBytes(StandardCharsets.UTF_8);
            out.writeByte(2);
            out.writeInt(text.length);
            out.write(text);
        } else if (value instanceof byte[]) {
            out.writeByte(3);
            out.writeInt(((byte[]) value).length);
            out.write((byte[]) value);
        } else if (value instanceof int[]) {
            out.writeByte(4);
            out.writeInt(((int[]) value).length);
            for (int number : (int[]) value) {
                out.writeInt(number);
            }
        } else if (value instanceof List) {
            out.writeByte(5);
            out.writeInt(((List<?>) value).size());
            for (Object each : (List<?>) value) {
                write(out, each);
            }
        } else if (value instanceof Map) {
            out.writeByte(6);
            out.writeInt(((Map<?, ?>) value).size());
            for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet()) {
                write(out, each.getKey());
                write(out, each.getValue());
            }
        } else {
            throw new IOException("a " + value.getClass() + " cannot be encoded");
        }
    }

    private static int number(Object value) {
        return Math.toIntExact((Long) value);
    }

    private static List<Integer> integers(Object value) {
        List<Integer> found = new ArrayList<>();
        for (int each : (int[]) value) {
            found.add(each);
        }
        return found;
    }
}
