"""Apache Kafka and Ottla are asked the same, and must answer the same."""
