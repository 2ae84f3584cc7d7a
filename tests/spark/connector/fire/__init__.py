"""Exactly-once under fire: real queries and nodes, with failures of tasks, drivers and brokers at random moments."""
