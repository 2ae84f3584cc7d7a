"""What benchmarks and tests both use: systems under test, Kafka's jars, ports, certificates, message values."""
