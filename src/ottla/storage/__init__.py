"""Logs on disk: segments and recovery, compaction, log directories, and state that a log of records keeps.

Imports `protocol` and `config`.
"""
