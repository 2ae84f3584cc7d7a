"""Tests of Ottla against Apache Kafka: its brokers, classes, tools and integration tests, and other clients."""
