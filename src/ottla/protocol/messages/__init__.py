"""All messages of the protocol, declared once for all versions.

`rpc` has one module per API, `records` has the stored records, one module per family.
"""
