"""Errors of reading: offsets, fetch sessions, and the records that a share group hands out.

`FetchSessionError` and `ShareSessionError` mean that the session is lost, not the data: the client opens a new one.
"""

from ottla.protocol.errors.base import ApiError


class FetchError(ApiError):
    """Records cannot be read as asked."""


class OffsetOutOfRange(FetchError, code=1, name="OFFSET_OUT_OF_RANGE"):
    """The log holds no such offset, because it was deleted or is not written yet; the client should reset its own."""


class InvalidFetchSize(FetchError, code=4, name="INVALID_FETCH_SIZE"):
    """The number of bytes to fetch is not allowed."""


class OffsetNotAvailable(FetchError, code=78, retriable=True, name="OFFSET_NOT_AVAILABLE"):
    """The leader is new and its high watermark has yet to catch up with what consumers saw; try again soon."""


class OffsetMovedToTieredStorage(FetchError, code=109, name="OFFSET_MOVED_TO_TIERED_STORAGE"):
    """The offset left the leader's disk for tiered storage; a follower should build its state from there."""


class FetchSessionError(FetchError):
    """The fetch session cannot go on; the client should start a new one with a full fetch."""


class FetchSessionIdNotFound(FetchSessionError, code=70, retriable=True, name="FETCH_SESSION_ID_NOT_FOUND"):
    """The broker has no such fetch session; it made room for others, or restarted."""


class InvalidFetchSessionEpoch(FetchSessionError, code=71, retriable=True, name="INVALID_FETCH_SESSION_EPOCH"):
    """The request is not the next one of its fetch session; one was lost or came twice."""


class FetchSessionTopicIdMismatch(FetchSessionError, code=106, retriable=True, name="FETCH_SESSION_TOPIC_ID_ERROR"):
    """The session began with topic names and the request uses topic ids, or the other way round."""


class ShareError(ApiError):
    """The records of a share partition cannot be handed out, acknowledged or kept track of as asked."""


class InvalidRecordState(ShareError, code=121, name="INVALID_RECORD_STATE"):
    """The records are not in a state that allows this acknowledgement; their lock may have run out."""


class FencedStateEpoch(ShareError, code=124, name="FENCED_STATE_EPOCH"):
    """The share partition's state has a newer epoch than the request; another writer took over."""


class ShareSessionError(ShareError):
    """The share session cannot go on; the client should start a new one."""


class ShareSessionNotFound(ShareSessionError, code=122, retriable=True, name="SHARE_SESSION_NOT_FOUND"):
    """The broker has no such share session; the connection that it lived on was closed."""


class InvalidShareSessionEpoch(ShareSessionError, code=123, retriable=True, name="INVALID_SHARE_SESSION_EPOCH"):
    """The request is not the next one of its share session; one was lost or came twice."""


class ShareSessionLimitReached(ShareSessionError, code=133, retriable=True, name="SHARE_SESSION_LIMIT_REACHED"):
    """The broker holds as many share sessions as it may; try again when others have ended."""
