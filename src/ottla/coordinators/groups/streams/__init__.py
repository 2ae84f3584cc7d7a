"""Streams groups (KIP-1071): the coordinator validates a topology and assigns its tasks to members.

`topology`, `partition_counts` and `configuring` derive the tasks, and `sticky_assignor` assigns them. Imports the
modules of `groups` that all kinds share.
"""
