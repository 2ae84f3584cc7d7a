"""Group, transaction and share coordinators: the rules of each, and the runtime that runs them on a broker.

Imports `protocol`, `config`, `storage`, `metadata`, `replication`, `client` and `security`. `groups`, `transactions`
and `share` are pure.
"""
