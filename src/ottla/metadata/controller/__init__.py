"""The decisions of the active controller: pure functions from an image and a request to records and a response.

A decision changes nothing until its records are applied to the image. Each takes a `ControllerView`: an image with the
options of this controller. Time, randomness and ids are arguments. Imports `metadata/image`, `config`, `security` and
`storage/state_machine`.

Readers of Apache Kafka find ReplicationControlManager in `create_topics`, `alter_partition`, `leader_elections`,
`partition_reassignments`, `broker_transitions` and `partition_change_builder`; ClusterControlManager in `registration`,
`heartbeats` and `replica_placer`; the other control managers under the names of what they control.
"""
