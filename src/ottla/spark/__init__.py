"""Ottla in Spark: topics as sources and sinks (`connector`), as tables (`tables`), and in declarative pipelines.

This room imports `client`, `security`, `config` and `protocol`, but nothing of a node.
"""
