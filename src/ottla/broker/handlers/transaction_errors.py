"""Errors of transactions in the words of older producers."""

from ottla.protocol.errors import ApiError, InvalidProducerEpoch, ProducerFenced


def client_error(error: ApiError, version: int, *, fenced_since: int) -> ApiError:
    """Return the error that clients of a version know: INVALID_PRODUCER_EPOCH before PRODUCER_FENCED (KIP-588)."""
    if isinstance(error, ProducerFenced) and version < fenced_since:
        return InvalidProducerEpoch(error.message)
    return error
