"""Consumer groups, whose assignments the coordinator computes (KIP-848).

`heartbeat` decides on ConsumerGroupHeartbeat. `classic_members`, `upgrading` and `downgrading` let members of both
protocols share a group, and convert groups. Imports `groups.classic` and the modules of `groups` that all kinds share.
"""
