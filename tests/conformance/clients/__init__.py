"""Unmodified clients and tools in Python, Go, JavaScript, C and Java, used with Ottla nodes."""
