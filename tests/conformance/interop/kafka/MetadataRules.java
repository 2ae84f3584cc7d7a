import org.apache.kafka.metadata.authorizer.StandardAuthorizer;

/** An authorizer with ACLs from the cluster's metadata. */
public final class MetadataRules extends StandardAuthorizer {
}
