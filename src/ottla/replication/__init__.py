"""Partitions as a broker holds them: leaders and followers, in-sync replicas, purgatories, fetch sessions.

Imports `protocol`, `config`, `storage` and `metadata`. Coordinators and request handlers stand on it.
"""
