"""Share partitions (KIP-932): the rules of the share coordinator, and of partition leaders for records in flight.

`coordinator`, `records` and `state` are the share coordinator. `partition`, `acquiring` and `acknowledging` are the
leader's side. Pure; imports `protocol`, `metadata.image` and `storage.state_machine`.
"""
