"""The replicas of a broker: leaders and followers, in-sync replicas, fetchers, fetch sessions and the purgatory.

Imports `protocol`, `config`, `storage` and `metadata`. Coordinators and request handlers use it.
"""
