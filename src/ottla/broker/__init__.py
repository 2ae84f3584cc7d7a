"""A broker's front: sockets, requests and their handlers, authorization, quotas, metrics, client telemetry.

Imports every room below it: `protocol`, `config`, `storage`, `metadata`, `replication`, `coordinators`, `security`,
`client`.
"""
