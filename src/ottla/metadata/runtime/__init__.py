"""Runs the metadata quorum on a node: its log, the quorum driver, the publisher, the active controller."""
