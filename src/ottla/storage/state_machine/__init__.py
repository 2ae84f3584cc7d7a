"""Decide, append, apply, reply: the one runtime of the controller and of all coordinators."""
