"""Counters and times of everything a node does, at the cost of an addition or two, and as Prometheus reads them."""
