"""Tests of the protocol, with tables of Kafka 4.3.1 to compare with."""
