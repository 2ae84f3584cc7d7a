"""The endpoints of a broker for share groups."""

from ottla.broker.handlers import (
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    share_group_offsets,
    share_states,
)
from ottla.broker.requests.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    share_group_heartbeat.share_group_heartbeat,
    share_group_describe.share_group_describe,
    share_fetch.share_fetch,
    share_acknowledge.share_acknowledge,
    share_group_offsets.describe_share_group_offsets,
    share_group_offsets.alter_share_group_offsets,
    share_group_offsets.delete_share_group_offsets,
    *share_states.ENDPOINTS,
)
