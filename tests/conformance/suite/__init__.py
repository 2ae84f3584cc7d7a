"""Kafka's own integration tests, run against clusters of Ottla's processes.

Apache Kafka publishes the tests as jars. A test annotated `@ClusterTest` gets its cluster from one class and then uses
only clients and tools. A class of the same name in `kafka/` replaces it, and returns a cluster that this program
starts.

    python -m tests.conformance.suite TopicCommandTest ConfigCommandIntegrationTest   # against Ottla
    python -m tests.conformance.suite --kafka TopicCommandTest                        # against Apache Kafka
    python -m tests.conformance.suite --all                                           # all tests expected to pass
"""
