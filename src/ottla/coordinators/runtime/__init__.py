"""Coordinators at work: state loaded from the partitions that this broker leads, decided on, and written there."""
