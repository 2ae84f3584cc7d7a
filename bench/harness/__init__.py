"""The harness that benchmarks and tests share: systems, Kafka's jars, ports, certificates, message values."""
