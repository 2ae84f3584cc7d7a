"""Every message of the protocol, declared once for all its versions: a module an API, and stored records by family."""
