"""Metrics that clients push (KIP-714): subscriptions, the state of each client, and the last values."""
