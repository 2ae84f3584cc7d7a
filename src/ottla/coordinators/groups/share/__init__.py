"""Share groups (KIP-932), as pure decisions: members share partitions, and the coordinator says who reads which."""
