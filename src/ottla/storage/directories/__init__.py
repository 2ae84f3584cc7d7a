"""Log directories of a node: the logs in them, checkpoint files, node files, free space."""
