"""Authentication and encryption for both sides of a connection: TLS, SASL, and their settings.

- `tls`, `keystores`: TLS contexts, and key stores as PEM text
- `sasl_client`, `sasl_server`, `scram`: the two sides of SASL
- `oauth_tokens`, `signed_tokens`: how clients get tokens, and how servers validate them
- `jaas`, `settings`: the settings of clients
- `delegation_tokens`, `principal_mapping`: delegation tokens, and principals of certificates

Imports `protocol` and `config`. Clients and brokers share it, so it is below both.
"""
