"""Sockets: listeners, connections, framing, back-pressure and throttling. This room handles bytes, not messages."""
