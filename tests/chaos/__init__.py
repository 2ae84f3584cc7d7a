"""Clusters under faults: simulated worlds, soaks of real nodes, cut networks."""
