"""Ottla beside Apache Kafka, its classes, its tools, its own tests, and clients of other makes."""
