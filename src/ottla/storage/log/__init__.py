"""A partition's log as Apache Kafka 4.3.1 stores it: segments, indexes, producer state, epochs, recovery, cleaning."""
