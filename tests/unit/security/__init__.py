"""TLS and SASL, beside Apache Kafka's."""
