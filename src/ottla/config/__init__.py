"""The configuration of a node.

- `settings`: the catalogue of settings, their types and checks, properties files, effective values
- `listeners`: listeners, addresses and connection limits
- `node_settings`: the typed settings of a node; `defaults`: the settings of a node without a configuration file
- `unrecognized`: warnings about unknown names

Imports `protocol`. Checks across settings that need other rooms are in `node/consistency.py`.
"""
