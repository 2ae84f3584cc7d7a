"""The settings of a group in Kafka 4.3.1, as rows like those of `broker_table.py`."""

from typing import Final

GROUP_ROWS: Final = """\
consumer.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM
consumer.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM
consumer.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM
share.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM
share.auto.offset.reset | STRING | latest | [latest, earliest, by_duration:PnDTnHnMn.nS] | MEDIUM
share.delivery.count.limit | INT | 5 | [2,...] | MEDIUM
share.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM
share.isolation.level | STRING | read_uncommitted | [read_committed, read_uncommitted] | MEDIUM
share.partition.max.record.locks | INT | 2000 | [100,...] | MEDIUM
share.record.lock.duration.ms | INT | 30000 | [1000,...] | MEDIUM
share.renew.acknowledge.enable | BOOLEAN | true | any | MEDIUM
share.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM
streams.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM
streams.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM
streams.initial.rebalance.delay.ms | INT | 3000 | [0,...] | MEDIUM
streams.num.standby.replicas | INT | 0 | [0,...] | MEDIUM
streams.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM
"""
