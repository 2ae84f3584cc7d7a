"""The runtime of share groups: share partitions at their leader, sessions, and the share coordinator's clients."""
