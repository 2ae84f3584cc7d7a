"""Wires one node together: settings, formatting, start, stop, liveness of brokers, health. The only place that does.

Imports all rooms but `cli` and `spark`.
"""
