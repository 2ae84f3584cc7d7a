"""Authentication and encryption for both sides of a connection: TLS, SASL, and the settings of both.

Imports `protocol` and `config`. Clients and brokers share it, so it is below both.
"""
