"""What several folders of tests use: nodes and clusters, disks and logs in memory, clocks, peers."""
