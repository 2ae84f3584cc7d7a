"""Requests to other nodes, and the admin calls that command line, console and pipeline share."""
