"""The settings of librdkafka 2.16.0, from its own list.

Written by ``python -m tools.reference.librdkafka``; a test compares it with the installed version.
``penstock.kafka.settings.librdkafka_table`` defines their treatment.

Thread: none; a constant.
Source: rd_kafka_conf_properties_show.
"""

from typing import Final

#: A row is a name, the clients that have it (C consumers, P producers, * all), its type, and the values it takes.
ROWS: Final = """
acks P integer -1..1000
allow.auto.create.topics * boolean
api.version.fallback.ms * integer 0..604800000
api.version.request * boolean
api.version.request.timeout.ms * integer 1..300000
auto.commit.enable C boolean
auto.commit.interval.ms C integer 0..86400000
auto.offset.reset C choice smallest,earliest,beginning,largest,latest,end,error
background_event_cb * code
batch.num.messages P integer 1..1000000
batch.size P integer 1..2147483647
bootstrap.servers * text
broker.address.family * choice any,v4,v6
broker.address.ttl * integer 0..86400000
broker.version.fallback * text
builtin.features * text
check.crcs C boolean
client.dns.lookup * choice use_all_dns_ips,resolve_canonical_bootstrap_servers_only
client.id * text
client.rack * text
closesocket_cb * code
compression.codec P choice none,gzip,snappy,lz4,zstd
compression.level P integer -1..12
compression.type P choice none,gzip,snappy,lz4,zstd
connect_cb * code
connections.max.idle.ms * integer 0..2147483647
consume.callback.max.messages C integer 0..1000000
consume_cb C code
coordinator.query.interval.ms C integer 1..3600000
debug * text
default_topic_conf * code
delivery.report.only.error P boolean
delivery.timeout.ms P integer 0..2147483647
dr_cb P code
dr_msg_cb P code
enable.auto.commit C boolean
enable.auto.offset.store C boolean
enable.gapless.guarantee P boolean
enable.idempotence P boolean
enable.metrics.push * boolean
enable.partition.eof C boolean
enable.random.seed * boolean
enable.sasl.oauthbearer.unsecure.jwt * boolean
enable.ssl.certificate.verification * boolean
enabled_events * integer 0..2147483647
error_cb * code
fetch.error.backoff.ms C integer 0..300000
fetch.max.bytes C integer 0..2147483135
fetch.message.max.bytes C integer 1..1000000000
fetch.min.bytes C integer 0..2147483647
fetch.queue.backoff.ms C integer 0..300000
fetch.wait.max.ms C integer 0..300000
group.id C text
group.instance.id C text
group.protocol C choice classic,consumer
group.protocol.type C text
group.remote.assignor C text
heartbeat.interval.ms C integer 1..3600000
https.ca.location * text
https.ca.pem * text
interceptors * code
internal.termination.signal * integer 0..128
isolation.level C choice read_uncommitted,read_committed
linger.ms P number
log.connection.close * boolean
log.queue * boolean
log.thread.name * boolean
log_cb * code
log_level * integer 0..7
max.in.flight * integer 1..1000000
max.in.flight.requests.per.connection * integer 1..1000000
max.partition.fetch.bytes C integer 1..1000000000
max.poll.interval.ms C integer 1..86400000
max.poll.records C integer 1..2147483647
message.copy.max.bytes * integer 0..1000000000
message.max.bytes * integer 1000..1000000000
message.send.max.retries P integer 0..2147483647
message.timeout.ms P integer 0..2147483647
metadata.broker.list * text
metadata.max.age.ms * integer 1..86400000
metadata.recovery.rebootstrap.trigger.ms * integer 0..2147483647
metadata.recovery.strategy * choice none,rebootstrap
msg_order_cmp P code
oauthbearer_token_refresh_cb * code
offset.store.method C choice none,file,broker
offset.store.path C text
offset.store.sync.interval.ms C integer -1..86400000
offset_commit_cb C code
opaque * code
open_cb * code
partition.assignment.strategy C text
partitioner P text
partitioner_cb P code
plugin.library.paths * text
produce.offset.report P boolean
queue.buffering.backpressure.threshold P integer 1..1000000
queue.buffering.max.kbytes P integer 1..2147483647
queue.buffering.max.messages P integer 0..2147483647
queue.buffering.max.ms P number
queued.max.messages.kbytes C integer 1..2097151
queued.min.messages C integer 1..10000000
queuing.strategy P choice fifo,lifo
rebalance_cb C code
receive.message.max.bytes * integer 1000..2147483647
reconnect.backoff.jitter.ms * integer 0..3600000
reconnect.backoff.max.ms * integer 0..3600000
reconnect.backoff.ms * integer 0..3600000
request.required.acks P integer -1..1000
request.timeout.ms P integer 1..900000
resolve_cb * code
retries P integer 0..2147483647
retry.backoff.max.ms * integer 1..300000
retry.backoff.ms * integer 1..300000
sasl.kerberos.keytab * text
sasl.kerberos.kinit.cmd * text
sasl.kerberos.min.time.before.relogin * integer 0..86400000
sasl.kerberos.principal * text
sasl.kerberos.service.name * text
sasl.mechanism * text
sasl.mechanisms * text
sasl.oauthbearer.assertion.algorithm * choice RS256,ES256
sasl.oauthbearer.assertion.claim.aud * text
sasl.oauthbearer.assertion.claim.exp.seconds * integer 1..2147483647
sasl.oauthbearer.assertion.claim.iss * text
sasl.oauthbearer.assertion.claim.jti.include * boolean
sasl.oauthbearer.assertion.claim.nbf.seconds * integer 0..2147483647
sasl.oauthbearer.assertion.claim.sub * text
sasl.oauthbearer.assertion.file * text
sasl.oauthbearer.assertion.jwt.template.file * text
sasl.oauthbearer.assertion.private.key.file * text
sasl.oauthbearer.assertion.private.key.passphrase * text
sasl.oauthbearer.assertion.private.key.pem * text
sasl.oauthbearer.client.credentials.client.id * text
sasl.oauthbearer.client.credentials.client.secret * text
sasl.oauthbearer.client.id * text
sasl.oauthbearer.client.secret * text
sasl.oauthbearer.config * text
sasl.oauthbearer.extensions * text
sasl.oauthbearer.grant.type * choice client_credentials,urn:ietf:params:oauth:grant-type:jwt-bearer
sasl.oauthbearer.metadata.authentication.type * choice none,azure_imds,aws_iam
sasl.oauthbearer.method * choice default,oidc
sasl.oauthbearer.scope * text
sasl.oauthbearer.sub.claim.name * text
sasl.oauthbearer.token.endpoint.url * text
sasl.password * text
sasl.username * text
security.protocol * choice plaintext,ssl,sasl_plaintext,sasl_ssl
session.timeout.ms C integer 1..3600000
share.acknowledgement.mode C text
socket.blocking.max.ms * integer 1..60000
socket.connection.setup.timeout.ms * integer 1000..2147483647
socket.keepalive.enable * boolean
socket.max.fails * integer 0..1000000
socket.nagle.disable * boolean
socket.receive.buffer.bytes * integer 0..100000000
socket.send.buffer.bytes * integer 0..100000000
socket.timeout.ms * integer 10..300000
socket_cb * code
ssl.ca.certificate.stores * text
ssl.ca.location * text
ssl.ca.pem * text
ssl.certificate.location * text
ssl.certificate.pem * text
ssl.certificate.verify_cb * code
ssl.cipher.suites * text
ssl.crl.location * text
ssl.curves.list * text
ssl.endpoint.identification.algorithm * choice none,https
ssl.engine.id * text
ssl.engine.location * text
ssl.key.location * text
ssl.key.password * text
ssl.key.pem * text
ssl.keystore.location * text
ssl.keystore.password * text
ssl.providers * text
ssl.sigalgs.list * text
ssl_ca * code
ssl_certificate * code
ssl_engine_callback_data * code
ssl_key * code
statistics.interval.ms * integer 0..86400000
stats_cb * code
sticky.partitioning.linger.ms P integer 0..900000
throttle_cb * code
topic.blacklist * text
topic.metadata.propagation.max.ms * integer 0..3600000
topic.metadata.refresh.fast.cnt * integer 0..1000
topic.metadata.refresh.fast.interval.ms * integer 1..60000
topic.metadata.refresh.interval.ms * integer -1..3600000
topic.metadata.refresh.sparse * boolean
transaction.timeout.ms P integer 1000..2147483647
transactional.id P text
"""
