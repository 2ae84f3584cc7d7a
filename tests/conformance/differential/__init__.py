"""Differential tests: Apache Kafka and Ottla get the same requests and must give the same answers."""
