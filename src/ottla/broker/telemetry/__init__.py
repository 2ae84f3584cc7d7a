"""Metrics that clients push (KIP-714): which they are asked for, what they may send when, and what they sent last."""
