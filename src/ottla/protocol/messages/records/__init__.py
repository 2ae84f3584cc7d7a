"""Records that logs and snapshots store, one file a family."""
