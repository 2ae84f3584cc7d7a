"""The metadata image: the cluster's metadata as immutable values, replayed from `__cluster_metadata`.

Pure; imports `protocol` only. `Image` is one state, `Delta` applies records to it, `Changes` compares two images,
`MetadataLoader` follows the log, `snapshot` writes an image as records, and `encoding` reads and writes their batches.
"""
