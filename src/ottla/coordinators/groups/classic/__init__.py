"""Classic groups (JoinGroup and SyncGroup): the leader, one of the members, computes the assignment.

`group` has the values, `joining` and `membership` the requests, `rebalance` the step from one generation to the next.
Imports `groups.context`, `groups.state` and `groups.timers`, and nothing of the newer protocols.
"""
