"""Errors of fetching: offsets, fetch sessions, and the acquired records of share groups.

After a `FetchSessionError` or `ShareSessionError` the client opens a new session. No data is lost.
"""

from ottla.protocol.errors.base import ApiError


class FetchError(ApiError):
    """The records cannot be fetched."""


class OffsetOutOfRange(FetchError, code=1, name="OFFSET_OUT_OF_RANGE"):
    """The offset is not in the log; it was deleted or is not written yet, and the client should reset its own."""


class InvalidFetchSize(FetchError, code=4, name="INVALID_FETCH_SIZE"):
    """The number of bytes to fetch is not allowed."""


class OffsetNotAvailable(FetchError, code=78, retriable=True, name="OFFSET_NOT_AVAILABLE"):
    """The leader is new, and its high watermark has not reached what consumers have already seen; try again soon."""


class OffsetMovedToTieredStorage(FetchError, code=109, name="OFFSET_MOVED_TO_TIERED_STORAGE"):
    """The offset was moved to tiered storage; a follower should build its state from there."""


class FetchSessionError(FetchError):
    """The fetch session is unusable; the client should start a new one with a full fetch."""


class FetchSessionIdNotFound(FetchSessionError, code=70, retriable=True, name="FETCH_SESSION_ID_NOT_FOUND"):
    """The broker has no such fetch session; it evicted the session, or restarted."""


class InvalidFetchSessionEpoch(FetchSessionError, code=71, retriable=True, name="INVALID_FETCH_SESSION_EPOCH"):
    """The request is not the next one of its fetch session; a request was lost or arrived twice."""


class FetchSessionTopicIdMismatch(FetchSessionError, code=106, retriable=True, name="FETCH_SESSION_TOPIC_ID_ERROR"):
    """The session uses topic names and the request uses topic ids, or vice versa."""


class ShareError(ApiError):
    """The records of a share partition cannot be acquired, acknowledged or tracked."""


class InvalidRecordState(ShareError, code=121, name="INVALID_RECORD_STATE"):
    """The records are not in a state that allows this acknowledgement; their lock may have expired."""


class FencedStateEpoch(ShareError, code=124, name="FENCED_STATE_EPOCH"):
    """The share partition's state has a newer epoch than the request; another writer took over."""


class ShareSessionError(ShareError):
    """The share session is unusable; the client should start a new one."""


class ShareSessionNotFound(ShareSessionError, code=122, retriable=True, name="SHARE_SESSION_NOT_FOUND"):
    """The broker has no such share session; the session ended with its connection."""


class InvalidShareSessionEpoch(ShareSessionError, code=123, retriable=True, name="INVALID_SHARE_SESSION_EPOCH"):
    """The request is not the next one of its share session; a request was lost or arrived twice."""


class ShareSessionLimitReached(ShareSessionError, code=133, retriable=True, name="SHARE_SESSION_LIMIT_REACHED"):
    """The broker has reached its limit of share sessions; try again when others have ended."""
