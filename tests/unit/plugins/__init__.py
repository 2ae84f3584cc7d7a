"""Plug-ins of either language: policies and assignors that settings name."""
