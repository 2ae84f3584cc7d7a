"""The records that logs and snapshots store, one module per family."""
