"""The cluster's metadata as immutable values, replayed from the records of `__cluster_metadata`."""
