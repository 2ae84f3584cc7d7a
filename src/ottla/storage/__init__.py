"""Logs on disk: segments and recovery, compaction, log directories, and the core of replicated state machines.

Imports `protocol` and `config` only.
"""
