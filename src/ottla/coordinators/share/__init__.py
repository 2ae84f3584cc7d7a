"""Share partitions (KIP-932): the share coordinator's rules, and what their leaders do with records in flight."""
