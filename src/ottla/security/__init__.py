"""Who is at the other end of a connection, and that nobody listens in: TLS, SASL, and the settings of both.

Exchanges of SASL are pure, bytes in and bytes out; only what reads key stores and asks for tokens touches the outside.
"""
