"""Clusters under faults: simulations, soak tests of real nodes, network partitions."""
