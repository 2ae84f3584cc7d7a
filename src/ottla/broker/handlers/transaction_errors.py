"""Errors of transactions that older producers know by another name."""

from ottla.protocol.errors import ApiError, InvalidProducerEpoch, ProducerFenced


def told(error: ApiError, version: int, *, fenced_since: int) -> ApiError:
    """The error as a version's clients know it: before PRODUCER_FENCED there was INVALID_PRODUCER_EPOCH (KIP-588)."""
    if isinstance(error, ProducerFenced) and version < fenced_since:
        return InvalidProducerEpoch(error.message)
    return error
