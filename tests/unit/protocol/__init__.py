"""The facts of Kafka 4.3.1's protocol that tests compare with."""
