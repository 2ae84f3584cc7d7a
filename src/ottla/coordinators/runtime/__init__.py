"""The runtime of the coordinators: decide, append, apply, reply.

A `Shard` runs one coordinator on one partition of its topic (`__consumer_offsets`, `__transaction_state` or
`__share_group_state`) while this broker leads it. `Shards` has all shards of a kind on this broker.

    load     The shard replays the partition's log into an immutable state, in slices between other work.
    decide   A rule of `groups`, `transactions` or `share` gets the state and a request and returns a `Decision`:
             records, a reply, unrecorded changes of the state, responses to parked requests, and timers. It changes
             nothing itself.
    append   The records are appended to the partition like any produce with acks=all.
    apply    The same replay function as in loading applies the records, so that the next decision sees them at once.
    reply    The reply goes out when the high watermark has passed the records. A reply without records waits, too, if
             earlier records are not committed: it may depend on them.

A request may be parked: its ticket becomes part of the state, and a later decision answers it. Only the decision that
takes a ticket out of the state answers it, never the failed append of the record that the request caused.

When the broker loses the partition, the shard drops its state and fails all waiting requests with NOT_COORDINATOR, so
that clients look for the new coordinator.

`transactions` and `share` add what their coordinators need beside shards: requests to other brokers, transaction
markers, and share partitions at their leaders. Imports the pure rooms and `replication`; `client` and `security` only
for connections to other brokers.
"""
