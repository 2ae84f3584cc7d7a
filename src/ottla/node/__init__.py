"""Wires a node together: configuration, formatting, start and stop. The only place that does."""
