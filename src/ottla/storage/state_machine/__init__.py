"""Replicated state machines (decide, append, apply, reply), the core of the controller and of all coordinators.

Imports `protocol` only.
"""
