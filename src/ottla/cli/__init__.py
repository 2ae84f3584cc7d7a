"""The command line: `ottla` and its subcommands, one module each.

Imports every room; no room imports it.
"""
