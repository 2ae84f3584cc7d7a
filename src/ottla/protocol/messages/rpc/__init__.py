"""Requests and responses, one file an API, declared once for all versions."""
