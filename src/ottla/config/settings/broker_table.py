"""The settings of a broker or controller in Kafka 4.3.1, as rows that `catalogue.py` reads.

A row: name | type | default | allowed values | importance | update mode. `null` is no value, `""` an empty one, and
`required` means that there is no default. An internal setting is not listed to clients. `checks.py` describes the
notation of the allowed values.
"""

from typing import Final

BROKER_ROWS: Final = """\
add.partitions.to.txn.retry.backoff.max.ms | INT | 100 | [0,...] | HIGH | read-only
add.partitions.to.txn.retry.backoff.ms | INT | 20 | [1,...] | HIGH | read-only
advertised.listeners | LIST | null | non-empty items | HIGH | read-only
alter.config.policy.class.name | CLASS | null | any | LOW | read-only
alter.log.dirs.replication.quota.window.num | INT | 11 | [1,...] | LOW | read-only
alter.log.dirs.replication.quota.window.size.seconds | INT | 1 | [1,...] | LOW | read-only
authorizer.class.name | STRING | "" | non-null string | LOW | read-only
auto.create.topics.enable | BOOLEAN | true | any | HIGH | read-only
auto.leader.rebalance.enable | BOOLEAN | true | any | HIGH | read-only
background.threads | INT | 10 | [1,...] | HIGH | cluster-wide
broker.heartbeat.interval.ms | INT | 2000 | any | MEDIUM | read-only
broker.id | INT | -1 | any | HIGH | read-only
broker.rack | STRING | null | any | MEDIUM | read-only
broker.session.timeout.ms | INT | 9000 | any | MEDIUM | read-only
client.quota.callback.class | CLASS | null | any | LOW | read-only
compression.gzip.level | INT | -1 | [1,...,9] or -1 | MEDIUM | cluster-wide
compression.lz4.level | INT | 9 | [1,...,17] | MEDIUM | cluster-wide
compression.type | STRING | producer | [uncompressed, zstd, lz4, snappy, gzip, producer] | HIGH | cluster-wide
compression.zstd.level | INT | 3 | [-131072,...,22] | MEDIUM | cluster-wide
config.providers | LIST | "" | items | LOW | cluster-wide
connection.failed.authentication.delay.ms | INT | 100 | [0,...] | LOW | read-only
connections.max.idle.ms | LONG | 600000 | any | MEDIUM | read-only
connections.max.reauth.ms | LONG | 0 | any | MEDIUM | read-only
controlled.shutdown.enable | BOOLEAN | true | any | MEDIUM | read-only
controller.listener.names | LIST | required | non-empty items | HIGH | read-only
controller.performance.always.log.threshold.ms | LONG | 2000 | [0,...] | MEDIUM | internal
controller.performance.sample.period.ms | LONG | 60000 | [100,...] | MEDIUM | internal
controller.quorum.append.linger.ms | INT | 25 | [0,...] | MEDIUM | read-only
controller.quorum.auto.join.enable | BOOLEAN | false | any | LOW | read-only
controller.quorum.bootstrap.servers | LIST | "" | host:port items | HIGH | read-only
controller.quorum.election.backoff.max.ms | INT | 1000 | [0,...] | HIGH | read-only
controller.quorum.election.timeout.ms | INT | 1000 | [0,...] | HIGH | read-only
controller.quorum.fetch.max.bytes | INT | 1048576 | [1,...] | LOW | read-only
controller.quorum.fetch.snapshot.max.bytes | INT | 1048576 | [1,...] | LOW | read-only
controller.quorum.fetch.timeout.ms | INT | 2000 | [0,...] | HIGH | read-only
controller.quorum.request.timeout.ms | INT | 2000 | [0,...] | MEDIUM | read-only
controller.quorum.retry.backoff.ms | INT | 20 | [0,...] | LOW | read-only
controller.quorum.voters | LIST | "" | id@host:port items | HIGH | read-only
controller.quota.window.num | INT | 11 | [1,...] | LOW | read-only
controller.quota.window.size.seconds | INT | 1 | [1,...] | LOW | read-only
controller.socket.timeout.ms | INT | 30000 | any | MEDIUM | read-only
cordoned.log.dirs | LIST | "" | items | MEDIUM | per-broker
create.topic.policy.class.name | CLASS | null | any | LOW | read-only
default.replication.factor | INT | 1 | any | MEDIUM | read-only
delegation.token.expiry.check.interval.ms | LONG | 3600000 | [1,...] | LOW | read-only
delegation.token.expiry.time.ms | LONG | 86400000 | [1,...] | MEDIUM | read-only
delegation.token.max.lifetime.ms | LONG | 604800000 | [1,...] | MEDIUM | read-only
delegation.token.secret.key | PASSWORD | null | any | MEDIUM | read-only
delete.records.purgatory.purge.interval.requests | INT | 1 | any | MEDIUM | read-only
delete.topic.enable | BOOLEAN | true | any | HIGH | read-only
early.start.listeners | LIST | null | items | HIGH | read-only
fetch.max.bytes | INT | 57671680 | [1024,...] | MEDIUM | read-only
fetch.purgatory.purge.interval.requests | INT | 1000 | any | MEDIUM | read-only
follower.fetch.last.tiered.offset.enable | BOOLEAN | false | any | MEDIUM | cluster-wide
group.consumer.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM | cluster-wide
group.consumer.assignors | LIST | uniform,range | non-empty items | MEDIUM | read-only
group.consumer.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | read-only
group.consumer.max.assignment.interval.ms | INT | 15000 | [0,...] | MEDIUM | read-only
group.consumer.max.heartbeat.interval.ms | INT | 15000 | [1,...] | MEDIUM | read-only
group.consumer.max.session.timeout.ms | INT | 60000 | [1,...] | MEDIUM | read-only
group.consumer.max.size | INT | 2147483647 | [1,...] | MEDIUM | read-only
group.consumer.migration.policy | STRING | \
bidirectional | (case insensitive) [DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL] | MEDIUM | read-only
group.consumer.min.assignment.interval.ms | INT | 0 | [0,...] | MEDIUM | read-only
group.consumer.min.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | read-only
group.consumer.min.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | read-only
group.consumer.regex.refresh.interval.ms | INT | 600000 | [10000,...] | MEDIUM | internal
group.consumer.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | read-only
group.coordinator.append.linger.ms | INT | -1 | [-1,...] | MEDIUM | read-only
group.coordinator.background.threads | INT | 2 | [1,...] | HIGH | read-only
group.coordinator.cached.buffer.max.bytes | INT | 1048588 | [524288,...] | MEDIUM | cluster-wide
group.coordinator.rebalance.protocols | LIST | \
classic,consumer,streams | non-empty [consumer, classic, share, streams] | MEDIUM | read-only
group.coordinator.threads | INT | 4 | [1,...] | HIGH | read-only
group.initial.rebalance.delay.ms | INT | 3000 | any | MEDIUM | read-only
group.max.session.timeout.ms | INT | 1800000 | any | MEDIUM | read-only
group.max.size | INT | 2147483647 | [1,...] | MEDIUM | read-only
group.min.session.timeout.ms | INT | 6000 | any | MEDIUM | read-only
group.share.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM | cluster-wide
group.share.assignors | LIST | simple | non-empty items | MEDIUM | read-only
group.share.delivery.count.limit | INT | 5 | [2,...,10] | MEDIUM | read-only
group.share.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | read-only
group.share.initialize.retry.interval.ms | INT | 30000 | [1,...] | LOW | internal
group.share.max.assignment.interval.ms | INT | 15000 | [0,...] | MEDIUM | read-only
group.share.max.delivery.count.limit | INT | 10 | [5,...,25] | MEDIUM | read-only
group.share.max.heartbeat.interval.ms | INT | 15000 | [1,...] | MEDIUM | read-only
group.share.max.partition.max.record.locks | INT | 4000 | [2000,...,10000] | MEDIUM | read-only
group.share.max.record.lock.duration.ms | INT | 60000 | [30000,...,3600000] | MEDIUM | read-only
group.share.max.session.timeout.ms | INT | 60000 | [1,...] | MEDIUM | read-only
group.share.max.share.sessions | INT | 2000 | [1,...] | MEDIUM | read-only
group.share.max.size | INT | 200 | [1,...,1000] | MEDIUM | read-only
group.share.min.assignment.interval.ms | INT | 0 | [0,...] | MEDIUM | read-only
group.share.min.delivery.count.limit | INT | 2 | [2,...,5] | MEDIUM | read-only
group.share.min.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | read-only
group.share.min.partition.max.record.locks | INT | 100 | [100,...,2000] | MEDIUM | read-only
group.share.min.record.lock.duration.ms | INT | 15000 | [1000,...,30000] | MEDIUM | read-only
group.share.min.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | read-only
group.share.partition.max.record.locks | INT | 2000 | [100,...,10000] | MEDIUM | read-only
group.share.persister.class.name | STRING | \
org.apache.kafka.server.share.persister.DefaultStatePersister | any | MEDIUM | internal
group.share.record.lock.duration.ms | INT | 30000 | [1000,...,3600000] | MEDIUM | read-only
group.share.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | read-only
group.streams.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM | cluster-wide
group.streams.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | read-only
group.streams.initial.rebalance.delay.ms | INT | 3000 | [0,...] | MEDIUM | read-only
group.streams.max.assignment.interval.ms | INT | 15000 | [0,...] | MEDIUM | read-only
group.streams.max.heartbeat.interval.ms | INT | 15000 | [1,...] | MEDIUM | read-only
group.streams.max.session.timeout.ms | INT | 60000 | [1,...] | MEDIUM | read-only
group.streams.max.size | INT | 2147483647 | [1,...] | MEDIUM | read-only
group.streams.max.standby.replicas | INT | 2 | [0,...] | MEDIUM | read-only
group.streams.min.assignment.interval.ms | INT | 0 | [0,...] | MEDIUM | read-only
group.streams.min.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | read-only
group.streams.min.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | read-only
group.streams.num.standby.replicas | INT | 0 | [0,...] | MEDIUM | read-only
group.streams.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | read-only
initial.broker.registration.timeout.ms | INT | 60000 | any | MEDIUM | read-only
inter.broker.listener.name | STRING | null | any | MEDIUM | read-only
internal.metadata.delete.delay.millis | LONG | 60000 | any | LOW | internal
internal.metadata.log.segment.bytes | INT | null | any | LOW | internal
internal.metadata.max.batch.size.in.bytes | INT | 8388608 | any | LOW | internal
kafka.metrics.polling.interval.secs | INT | 10 | [1,...] | LOW | read-only
kafka.metrics.reporters | LIST | "" | items | LOW | read-only
leader.imbalance.check.interval.seconds | LONG | 300 | [1,...] | HIGH | read-only
listener.security.protocol.map | STRING | \
SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT | any | LOW | per-broker
listeners | LIST | PLAINTEXT://:9092 | non-empty items | HIGH | per-broker
log.cleaner.backoff.ms | LONG | 15000 | [0,...] | MEDIUM | cluster-wide
log.cleaner.dedupe.buffer.size | LONG | 134217728 | any | MEDIUM | cluster-wide
log.cleaner.delete.retention.ms | LONG | 86400000 | [0,...] | MEDIUM | cluster-wide
log.cleaner.enable | BOOLEAN | true | any | MEDIUM | read-only
log.cleaner.io.buffer.load.factor | DOUBLE | 0.9 | any | MEDIUM | cluster-wide
log.cleaner.io.buffer.size | INT | 524288 | [0,...] | MEDIUM | cluster-wide
log.cleaner.io.max.bytes.per.second | DOUBLE | 1.7976931348623157E308 | any | MEDIUM | cluster-wide
log.cleaner.max.compaction.lag.ms | LONG | 9223372036854775807 | [1,...] | MEDIUM | cluster-wide
log.cleaner.min.cleanable.ratio | DOUBLE | 0.5 | [0,...,1] | MEDIUM | cluster-wide
log.cleaner.min.compaction.lag.ms | LONG | 0 | [0,...] | MEDIUM | cluster-wide
log.cleaner.threads | INT | 1 | [0,...] | MEDIUM | cluster-wide
log.cleanup.policy | LIST | delete | [compact, delete] | MEDIUM | cluster-wide
log.dir | LIST | /tmp/kafka-logs | non-empty items | HIGH | read-only
log.dir.failure.timeout.ms | LONG | 30000 | [1,...] | LOW | read-only
log.dirs | LIST | null | non-empty items | HIGH | read-only
log.flush.interval.messages | LONG | 9223372036854775807 | [1,...] | HIGH | cluster-wide
log.flush.interval.ms | LONG | null | any | HIGH | cluster-wide
log.flush.offset.checkpoint.interval.ms | INT | 60000 | [0,...] | HIGH | read-only
log.flush.scheduler.interval.ms | LONG | 9223372036854775807 | any | HIGH | read-only
log.flush.start.offset.checkpoint.interval.ms | INT | 60000 | [0,...] | HIGH | read-only
log.index.interval.bytes | INT | 4096 | [0,...] | MEDIUM | cluster-wide
log.index.size.max.bytes | INT | 10485760 | [4,...] | MEDIUM | cluster-wide
log.initial.task.delay.ms | LONG | 30000 | [0,...] | LOW | internal
log.local.retention.bytes | LONG | -2 | [-2,...] | MEDIUM | cluster-wide
log.local.retention.ms | LONG | -2 | [-2,...] | MEDIUM | cluster-wide
log.message.timestamp.after.max.ms | LONG | 3600000 | [0,...] | MEDIUM | cluster-wide
log.message.timestamp.before.max.ms | LONG | 9223372036854775807 | [0,...] | MEDIUM | cluster-wide
log.message.timestamp.type | STRING | CreateTime | [CreateTime, LogAppendTime] | MEDIUM | cluster-wide
log.preallocate | BOOLEAN | false | any | MEDIUM | cluster-wide
log.retention.bytes | LONG | -1 | any | HIGH | cluster-wide
log.retention.check.interval.ms | LONG | 300000 | [1,...] | MEDIUM | read-only
log.retention.hours | INT | 168 | any | HIGH | read-only
log.retention.minutes | INT | null | any | HIGH | read-only
log.retention.ms | LONG | null | any | HIGH | cluster-wide
log.roll.hours | INT | 168 | [1,...] | HIGH | read-only
log.roll.jitter.hours | INT | 0 | [0,...] | HIGH | read-only
log.roll.jitter.ms | LONG | null | any | HIGH | cluster-wide
log.roll.ms | LONG | null | any | HIGH | cluster-wide
log.segment.bytes | INT | 1073741824 | [1048576,...] | HIGH | cluster-wide
log.segment.delete.delay.ms | LONG | 60000 | [0,...] | HIGH | cluster-wide
max.connection.creation.rate | INT | 2147483647 | [0,...] | MEDIUM | cluster-wide
max.connections | INT | 2147483647 | [0,...] | MEDIUM | cluster-wide
max.connections.per.ip | INT | 2147483647 | [0,...] | MEDIUM | cluster-wide
max.connections.per.ip.overrides | STRING | "" | any | MEDIUM | cluster-wide
max.incremental.fetch.session.cache.slots | INT | 1000 | [0,...] | MEDIUM | read-only
max.request.partition.size.limit | INT | 2000 | [1,...] | MEDIUM | read-only
message.max.bytes | INT | 1048588 | [0,...] | HIGH | cluster-wide
metadata.log.dir | STRING | null | any | HIGH | read-only
metadata.log.max.record.bytes.between.snapshots | LONG | 20971520 | [1,...] | HIGH | read-only
metadata.log.max.snapshot.interval.ms | LONG | 3600000 | [0,...] | HIGH | read-only
metadata.log.segment.bytes | INT | 1073741824 | [8388608,...] | HIGH | read-only
metadata.log.segment.ms | LONG | 604800000 | any | HIGH | read-only
metadata.max.idle.interval.ms | INT | 500 | [0,...] | LOW | read-only
metadata.max.retention.bytes | LONG | 104857600 | any | HIGH | read-only
metadata.max.retention.ms | LONG | 604800000 | any | HIGH | read-only
metric.reporters | LIST | org.apache.kafka.common.metrics.JmxReporter | items | LOW | cluster-wide
metrics.num.samples | INT | 2 | [1,...] | LOW | read-only
metrics.recording.level | STRING | INFO | any | LOW | read-only
metrics.sample.window.ms | LONG | 30000 | [1,...] | LOW | read-only
min.insync.replicas | INT | 1 | [1,...] | HIGH | cluster-wide
node.id | INT | required | [0,...] | HIGH | read-only
num.io.threads | INT | 8 | [1,...] | HIGH | cluster-wide
num.network.threads | INT | 3 | [1,...] | HIGH | cluster-wide
num.partitions | INT | 1 | [1,...] | MEDIUM | read-only
num.recovery.threads.per.data.dir | INT | 2 | [1,...] | HIGH | cluster-wide
num.replica.alter.log.dirs.threads | INT | null | any | HIGH | read-only
num.replica.fetchers | INT | 1 | [1,...] | HIGH | cluster-wide
offset.metadata.max.bytes | INT | 4096 | any | HIGH | read-only
offsets.commit.timeout.ms | INT | 5000 | [1,...] | HIGH | read-only
offsets.load.buffer.size | INT | 5242880 | [1,...] | HIGH | read-only
offsets.retention.check.interval.ms | LONG | 600000 | [1,...] | HIGH | read-only
offsets.retention.minutes | INT | 10080 | [1,...] | HIGH | read-only
offsets.topic.compression.codec | INT | 0 | any | HIGH | read-only
offsets.topic.num.partitions | INT | 50 | [1,...] | HIGH | read-only
offsets.topic.replication.factor | SHORT | 3 | [1,...] | HIGH | read-only
offsets.topic.segment.bytes | INT | 104857600 | [1,...] | HIGH | read-only
principal.builder.class | CLASS | \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder | any | MEDIUM | per-broker
process.roles | LIST | required | non-empty [broker, controller] | HIGH | read-only
producer.id.expiration.check.interval.ms | INT | 600000 | [1,...] | LOW | internal
producer.id.expiration.ms | INT | 86400000 | [1,...] | LOW | cluster-wide
producer.purgatory.purge.interval.requests | INT | 1000 | any | MEDIUM | read-only
queued.max.request.bytes | LONG | -1 | any | MEDIUM | read-only
queued.max.requests | INT | 500 | [1,...] | HIGH | read-only
quota.window.num | INT | 11 | [1,...] | LOW | read-only
quota.window.size.seconds | INT | 1 | [1,...] | LOW | read-only
remote.fetch.max.wait.ms | INT | 500 | [1,...] | MEDIUM | cluster-wide
remote.list.offsets.request.timeout.ms | LONG | 30000 | [1,...] | MEDIUM | cluster-wide
remote.log.index.file.cache.total.size.bytes | LONG | 1073741824 | [1,...] | LOW | cluster-wide
remote.log.index.file.cache.ttl.ms | LONG | 900000 | [-1,...] | LOW | internal
remote.log.manager.copier.thread.pool.size | INT | 10 | [1,...] | MEDIUM | cluster-wide
remote.log.manager.copy.max.bytes.per.second | LONG | 9223372036854775807 | [1,...] | MEDIUM | cluster-wide
remote.log.manager.copy.quota.window.num | INT | 11 | [1,...] | MEDIUM | read-only
remote.log.manager.copy.quota.window.size.seconds | INT | 1 | [1,...] | MEDIUM | read-only
remote.log.manager.expiration.thread.pool.size | INT | 10 | [1,...] | MEDIUM | cluster-wide
remote.log.manager.fetch.max.bytes.per.second | LONG | 9223372036854775807 | [1,...] | MEDIUM | cluster-wide
remote.log.manager.fetch.quota.window.num | INT | 11 | [1,...] | MEDIUM | read-only
remote.log.manager.fetch.quota.window.size.seconds | INT | 1 | [1,...] | MEDIUM | read-only
remote.log.manager.follower.thread.pool.size | INT | 2 | [1,...] | MEDIUM | cluster-wide
remote.log.manager.task.interval.ms | LONG | 30000 | [1,...] | LOW | read-only
remote.log.manager.task.retry.backoff.max.ms | LONG | 30000 | [1,...] | LOW | internal
remote.log.manager.task.retry.backoff.ms | LONG | 500 | [1,...] | LOW | internal
remote.log.manager.task.retry.jitter | DOUBLE | 0.2 | [0,...,0.5] | LOW | internal
remote.log.manager.thread.pool.size | INT | 2 | [1,...] | MEDIUM | read-only
remote.log.metadata.custom.metadata.max.bytes | INT | 128 | [0,...] | LOW | read-only
remote.log.metadata.manager.class.name | STRING | \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager | \
non-empty string | MEDIUM | read-only
remote.log.metadata.manager.class.path | STRING | null | any | MEDIUM | read-only
remote.log.metadata.manager.impl.prefix | STRING | rlmm.config. | non-empty string | MEDIUM | read-only
remote.log.metadata.manager.listener.name | STRING | null | non-empty string | MEDIUM | read-only
remote.log.reader.max.pending.tasks | INT | 100 | [1,...] | MEDIUM | read-only
remote.log.reader.threads | INT | 10 | [1,...] | MEDIUM | cluster-wide
remote.log.storage.manager.class.name | STRING | null | non-empty string | MEDIUM | read-only
remote.log.storage.manager.class.path | STRING | null | any | MEDIUM | read-only
remote.log.storage.manager.impl.prefix | STRING | rsm.config. | non-empty string | MEDIUM | read-only
remote.log.storage.system.enable | BOOLEAN | false | any | MEDIUM | read-only
replica.fetch.backoff.ms | INT | 1000 | [0,...] | MEDIUM | read-only
replica.fetch.max.bytes | INT | 1048576 | [0,...] | MEDIUM | read-only
replica.fetch.min.bytes | INT | 1 | any | HIGH | read-only
replica.fetch.response.max.bytes | INT | 10485760 | [0,...] | MEDIUM | read-only
replica.fetch.wait.max.ms | INT | 500 | any | HIGH | read-only
replica.high.watermark.checkpoint.interval.ms | LONG | 5000 | any | HIGH | read-only
replica.lag.time.max.ms | LONG | 30000 | any | HIGH | read-only
replica.selector.class | STRING | null | any | MEDIUM | read-only
replica.socket.receive.buffer.bytes | INT | 65536 | any | HIGH | read-only
replica.socket.timeout.ms | INT | 30000 | any | HIGH | read-only
replication.quota.window.num | INT | 11 | [1,...] | LOW | read-only
replication.quota.window.size.seconds | INT | 1 | [1,...] | LOW | read-only
request.timeout.ms | INT | 30000 | any | HIGH | read-only
sasl.client.callback.handler.class | CLASS | null | any | MEDIUM | read-only
sasl.enabled.mechanisms | LIST | GSSAPI | items | MEDIUM | per-broker
sasl.jaas.config | PASSWORD | null | any | MEDIUM | per-broker
sasl.kerberos.kinit.cmd | STRING | /usr/bin/kinit | any | MEDIUM | per-broker
sasl.kerberos.min.time.before.relogin | LONG | 60000 | any | MEDIUM | per-broker
sasl.kerberos.principal.to.local.rules | LIST | DEFAULT | items | MEDIUM | per-broker
sasl.kerberos.service.name | STRING | null | any | MEDIUM | per-broker
sasl.kerberos.ticket.renew.jitter | DOUBLE | 0.05 | any | MEDIUM | per-broker
sasl.kerberos.ticket.renew.window.factor | DOUBLE | 0.8 | any | MEDIUM | per-broker
sasl.login.callback.handler.class | CLASS | null | any | MEDIUM | read-only
sasl.login.class | CLASS | null | any | MEDIUM | read-only
sasl.login.connect.timeout.ms | INT | null | any | LOW | read-only
sasl.login.read.timeout.ms | INT | null | any | LOW | read-only
sasl.login.refresh.buffer.seconds | SHORT | 300 | any | MEDIUM | per-broker
sasl.login.refresh.min.period.seconds | SHORT | 60 | any | MEDIUM | per-broker
sasl.login.refresh.window.factor | DOUBLE | 0.8 | any | MEDIUM | per-broker
sasl.login.refresh.window.jitter | DOUBLE | 0.05 | any | MEDIUM | per-broker
sasl.login.retry.backoff.max.ms | LONG | 10000 | any | LOW | read-only
sasl.login.retry.backoff.ms | LONG | 100 | any | LOW | read-only
sasl.mechanism.controller.protocol | STRING | GSSAPI | any | HIGH | read-only
sasl.mechanism.inter.broker.protocol | STRING | GSSAPI | any | MEDIUM | per-broker
sasl.oauthbearer.assertion.algorithm | STRING | RS256 | (case insensitive) [ES256, RS256] | MEDIUM | read-only
sasl.oauthbearer.assertion.claim.aud | STRING | null | any | MEDIUM | read-only
sasl.oauthbearer.assertion.claim.exp.seconds | INT | 300 | [0,...,86400] | LOW | read-only
sasl.oauthbearer.assertion.claim.iss | STRING | null | any | MEDIUM | read-only
sasl.oauthbearer.assertion.claim.jti.include | BOOLEAN | false | any | MEDIUM | read-only
sasl.oauthbearer.assertion.claim.nbf.seconds | INT | 60 | [0,...,3600] | LOW | read-only
sasl.oauthbearer.assertion.claim.sub | STRING | null | any | MEDIUM | read-only
sasl.oauthbearer.assertion.file | STRING | null | any | MEDIUM | read-only
sasl.oauthbearer.assertion.private.key.file | STRING | null | any | MEDIUM | read-only
sasl.oauthbearer.assertion.private.key.passphrase | PASSWORD | null | any | MEDIUM | read-only
sasl.oauthbearer.assertion.template.file | STRING | null | any | MEDIUM | read-only
sasl.oauthbearer.client.credentials.client.id | STRING | null | any | MEDIUM | read-only
sasl.oauthbearer.client.credentials.client.secret | PASSWORD | null | any | MEDIUM | read-only
sasl.oauthbearer.clock.skew.seconds | INT | 30 | any | LOW | read-only
sasl.oauthbearer.expected.audience | LIST | "" | items | HIGH | read-only
sasl.oauthbearer.expected.issuer | STRING | null | any | HIGH | read-only
sasl.oauthbearer.jwks.endpoint.refresh.ms | LONG | 3600000 | any | LOW | read-only
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | LONG | 10000 | any | LOW | read-only
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | LONG | 100 | any | LOW | read-only
sasl.oauthbearer.jwks.endpoint.url | STRING | null | any | MEDIUM | read-only
sasl.oauthbearer.jwt.retriever.class | CLASS | \
org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever | any | MEDIUM | read-only
sasl.oauthbearer.jwt.validator.class | CLASS | \
org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator | any | MEDIUM | read-only
sasl.oauthbearer.scope | STRING | null | any | MEDIUM | read-only
sasl.oauthbearer.scope.claim.name | STRING | scope | any | LOW | read-only
sasl.oauthbearer.sub.claim.name | STRING | sub | any | LOW | read-only
sasl.oauthbearer.token.endpoint.url | STRING | null | any | MEDIUM | read-only
sasl.server.callback.handler.class | CLASS | null | any | MEDIUM | read-only
sasl.server.max.receive.size | INT | 524288 | any | MEDIUM | read-only
security.inter.broker.protocol | STRING | PLAINTEXT | [PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL] | MEDIUM | read-only
security.providers | STRING | null | any | LOW | read-only
server.max.startup.time.ms | LONG | 9223372036854775807 | [0,...] | MEDIUM | internal
share.coordinator.append.linger.ms | INT | -1 | [-1,...] | MEDIUM | read-only
share.coordinator.cached.buffer.max.bytes | INT | 1048588 | [524288,...] | MEDIUM | cluster-wide
share.coordinator.cold.partition.snapshot.interval.ms | INT | 300000 | [1,...] | LOW | internal
share.coordinator.load.buffer.size | INT | 5242880 | [1,...] | HIGH | read-only
share.coordinator.snapshot.update.records.per.snapshot | INT | 500 | [0,...,500] | MEDIUM | read-only
share.coordinator.state.topic.compression.codec | INT | 0 | any | HIGH | read-only
share.coordinator.state.topic.min.isr | SHORT | 2 | [1,...] | HIGH | read-only
share.coordinator.state.topic.num.partitions | INT | 50 | [1,...] | HIGH | read-only
share.coordinator.state.topic.prune.interval.ms | INT | 300000 | [1,...] | LOW | internal
share.coordinator.state.topic.replication.factor | SHORT | 3 | [1,...] | HIGH | read-only
share.coordinator.state.topic.segment.bytes | INT | 104857600 | [1,...] | HIGH | read-only
share.coordinator.threads | INT | 1 | [1,...] | MEDIUM | read-only
share.coordinator.write.timeout.ms | INT | 5000 | [1,...] | HIGH | read-only
share.fetch.purgatory.purge.interval.requests | INT | 1000 | any | MEDIUM | read-only
socket.connection.setup.timeout.max.ms | LONG | 30000 | any | MEDIUM | read-only
socket.connection.setup.timeout.ms | LONG | 10000 | any | MEDIUM | read-only
socket.listen.backlog.size | INT | 50 | [1,...] | MEDIUM | read-only
socket.receive.buffer.bytes | INT | 102400 | any | HIGH | read-only
socket.request.max.bytes | INT | 104857600 | [1,...] | HIGH | read-only
socket.send.buffer.bytes | INT | 102400 | any | HIGH | read-only
ssl.allow.dn.changes | BOOLEAN | false | any | LOW | read-only
ssl.allow.san.changes | BOOLEAN | false | any | LOW | read-only
ssl.cipher.suites | LIST | "" | items | MEDIUM | per-broker
ssl.client.auth | STRING | none | [required, requested, none] | MEDIUM | per-broker
ssl.enabled.protocols | LIST | TLSv1.2,TLSv1.3 | items | MEDIUM | per-broker
ssl.endpoint.identification.algorithm | STRING | https | any | LOW | per-broker
ssl.engine.factory.class | CLASS | null | any | LOW | per-broker
ssl.key.password | PASSWORD | null | any | MEDIUM | per-broker
ssl.keymanager.algorithm | STRING | SunX509 | any | MEDIUM | per-broker
ssl.keystore.certificate.chain | PASSWORD | null | any | MEDIUM | per-broker
ssl.keystore.key | PASSWORD | null | any | MEDIUM | per-broker
ssl.keystore.location | STRING | null | any | MEDIUM | per-broker
ssl.keystore.password | PASSWORD | null | any | MEDIUM | per-broker
ssl.keystore.type | STRING | JKS | any | MEDIUM | per-broker
ssl.principal.mapping.rules | STRING | DEFAULT | any | LOW | read-only
ssl.protocol | STRING | TLSv1.3 | any | MEDIUM | per-broker
ssl.provider | STRING | null | any | MEDIUM | per-broker
ssl.secure.random.implementation | STRING | null | any | LOW | per-broker
ssl.trustmanager.algorithm | STRING | PKIX | any | MEDIUM | per-broker
ssl.truststore.certificates | PASSWORD | null | any | MEDIUM | per-broker
ssl.truststore.location | STRING | null | any | MEDIUM | per-broker
ssl.truststore.password | PASSWORD | null | any | MEDIUM | per-broker
ssl.truststore.type | STRING | JKS | any | MEDIUM | per-broker
telemetry.max.bytes | INT | 1048576 | [1,...] | LOW | read-only
transaction.abort.timed.out.transaction.cleanup.interval.ms | INT | 10000 | [1,...] | LOW | read-only
transaction.max.timeout.ms | INT | 900000 | [1,...] | HIGH | read-only
transaction.partition.verification.enable | BOOLEAN | true | any | LOW | cluster-wide
transaction.remove.expired.transaction.cleanup.interval.ms | INT | 3600000 | [1,...] | LOW | read-only
transaction.state.log.load.buffer.size | INT | 5242880 | [1,...] | HIGH | read-only
transaction.state.log.min.isr | INT | 2 | [1,...] | HIGH | read-only
transaction.state.log.num.partitions | INT | 50 | [1,...] | HIGH | read-only
transaction.state.log.replication.factor | SHORT | 3 | [1,...] | HIGH | read-only
transaction.state.log.segment.bytes | INT | 104857600 | [1,...] | HIGH | read-only
transaction.two.phase.commit.enable | BOOLEAN | false | any | LOW | read-only
transactional.id.expiration.ms | INT | 604800000 | [1,...] | HIGH | read-only
unclean.leader.election.enable | BOOLEAN | false | any | HIGH | cluster-wide
unclean.leader.election.interval.ms | LONG | 300000 | [1,...] | MEDIUM | internal
unstable.api.versions.enable | BOOLEAN | false | any | HIGH | internal
unstable.feature.versions.enable | BOOLEAN | false | any | HIGH | internal
"""
