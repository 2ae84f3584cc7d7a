"""Ottla in Spark: topics as sources and sinks (`connector`), as tables (`tables`), and in declarative pipelines.

Imports `client`, `security`, `config` and `protocol`, and nothing of a node.
"""
