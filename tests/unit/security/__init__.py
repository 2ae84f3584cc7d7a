"""TLS and SASL, compared with Apache Kafka's."""
