"""Sockets: listeners, connections, framing, back-pressure and throttling. Knows bytes, not what they mean."""
