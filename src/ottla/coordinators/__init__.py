"""The group, transaction and share coordinators.

`groups`, `transactions` and `share` have the rules. They are pure: no sockets, files, clocks, threads or randomness,
and none imports another. `runtime` runs them on a broker. The room imports `protocol`, `config`, `storage`, `metadata`,
`replication`, `client` and `security`.
"""
