"""What goes over the wire and into logs: primitives, record batches, messages, errors and feature levels. Pure.

Imports nothing of the other rooms.
"""
