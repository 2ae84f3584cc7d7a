"""Micro-benchmarks of parts of Ottla: the codec, the log, records, the steps of a request."""
