"""DeleteTopics (key 20): delete topics with all their records.

v2 responds before it throttles (KIP-219) · v3 says when deletion is switched off (KIP-322) · v4 flexible · v5 error
messages; may return THROTTLING_QUOTA_EXCEEDED (KIP-599) · v6 by name or by id (KIP-516).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Uuid


@struct
class DeleteTopicState:
    name: str | None = since("6+", default=None)
    topic_id: Uuid = since("6+", default=ZERO_UUID)


@request(key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    topic_names: list[str] = since("1-5", factory=list)
    topics: list[DeleteTopicState] = since("6+", factory=list)
    timeout_ms: Int32 = since("1+", default=0)


@struct
class DeletableTopicResult:
    name: str | None = since("1+", default="", nullable="6+")
    topic_id: Uuid = since("6+", default=ZERO_UUID)
    error_code: Int16 = since("1+", default=0)
    error_message: str | None = since("5+", default=None)


@response(key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    responses: list[DeletableTopicResult] = since("1+", factory=list)
