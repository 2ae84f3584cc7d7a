"""Fixtures that several test folders share: nodes and clusters, disks and logs in memory, clocks, peers."""
