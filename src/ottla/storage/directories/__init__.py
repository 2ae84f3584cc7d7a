"""The log directories of a node: their logs, checkpoint files, node files and disk space. Imports `storage.log`."""
