import org.apache.kafka.metadata.authorizer.StandardAuthorizer;

/** An authorizer that takes its ACLs from the cluster's metadata. */
public final class MetadataRules extends StandardAuthorizer {
}
