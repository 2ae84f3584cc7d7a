"""Log compaction: which log is cleanable, the rules for its batches, the cleaner and its schedule."""
