"""The settings of Kafka 4.3.1: types, allowed values, defaults, and the broker settings behind topic settings. Pure."""
