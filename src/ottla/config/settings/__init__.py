"""Every setting of Kafka 4.3.1: what it may be, what it is by default, and where a topic takes its value from. Pure."""
