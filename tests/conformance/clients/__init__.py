"""Clients and tools that know nothing of Ottla, at work on its nodes: in Python, Go, JavaScript, C and Java."""
