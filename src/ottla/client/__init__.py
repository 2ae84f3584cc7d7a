"""Requests to other nodes, and the admin calls that the command line, other nodes and Spark share.

- `connection`, `cluster`: a connection to a node, and a cluster as a client sees it
- `producer`, `consumer`: clients that write and read records
- `admin`: admin calls, with `topic_calls`, `group_calls` and the other parts of `Admin`

Imports `protocol`, `config` and `security`.
"""
