"""The wire and log format: primitives, record batches, messages, errors and feature levels. Pure.

- `wire`: primitive types, generated and compiled message codecs, record batches, compression
- `messages`: one declared class for each request, response and stored record
- `errors`: Kafka's error codes as a tree of exceptions
- `java`: the iteration order of Java's collections
- `features`, `metadata_versions`: the feature levels that this release supports

Imports no other room.
"""
