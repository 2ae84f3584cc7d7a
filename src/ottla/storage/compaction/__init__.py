"""Log compaction: cleanable ranges, the rules for batches, the cleaner and its scheduler.

Imports `storage.log` and `storage.directories`.
"""
