"""Primitive types, message codecs and record batches. Pure: no I/O, clock or randomness."""
