"""A check of requests that the heartbeats of all newer protocols share."""

from __future__ import annotations

from ottla.protocol.errors import InvalidRequest


def check_not_blank(text: str | None, field: str) -> None:
    """Raise InvalidRequest, in Kafka's words, if a field is set and holds only white space."""
    if text is not None and not text.strip():
        raise InvalidRequest(f"{field} can't be empty.")
