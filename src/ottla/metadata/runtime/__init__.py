"""Runs metadata on a node: the metadata log, the quorum driver, the publisher and the active controller.

Imports the pure rooms of `metadata`, and `config`, `security` and `storage`. The event loop, clock, randomness and
connections are arguments.
"""
