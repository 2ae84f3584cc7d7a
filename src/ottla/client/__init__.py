"""Requests to other nodes, and the admin calls that the command line, other nodes and Spark share.

Imports `protocol`, `config` and `security`.
"""
