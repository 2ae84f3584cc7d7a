"""Streams groups (KIP-1071): members share the tasks of a topology, which the coordinator validates and assigns."""
