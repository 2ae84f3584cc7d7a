"""Requests and responses, one module per API, declared once for all versions."""
