"""Metrics of a node: counters and times that cost an addition or two, and their text for Prometheus."""
