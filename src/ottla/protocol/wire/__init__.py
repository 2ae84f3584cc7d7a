"""Bytes to meaning and back: primitives, compiled message codecs, record batches. Pure: no I/O, clock or randomness."""
