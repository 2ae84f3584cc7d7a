"""Share groups (KIP-932): several members may read a partition, and the coordinator assigns partitions to members.

`states` tracks which share partitions are initialized at the share coordinator. Imports the modules of `groups` that
all kinds share.
"""
