"""Exactly-once under fire: real queries, real nodes, and whatever can die, at moments that are chosen at random."""
