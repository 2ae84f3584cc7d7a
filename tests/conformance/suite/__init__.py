"""Kafka's own integration tests, run against clusters of Ottla's processes.

Apache Kafka publishes them as jars. Those annotated `@ClusterTest` ask one class for a cluster and then use nothing but
clients and tools; a class of the same name (`kafka/`) gives them one that this program starts.

    python -m tests.conformance.suite TopicCommandTest ConfigCommandIntegrationTest   # against Ottla
    python -m tests.conformance.suite --kafka TopicCommandTest                        # against Apache Kafka, for
    comparison python -m tests.conformance.suite --all                                           # everything that is
    expected to pass
"""
