"""Validation of topic names."""

import re

from ottla.protocol.errors import InvalidTopic

METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
MAX_NAME_LENGTH = 249
_is_legal_name = re.compile(r"[a-zA-Z0-9._-]+").fullmatch


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic unless Kafka allows the name, which is also part of a directory name."""
    if not name:
        raise InvalidTopic("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopic(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopic(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
        )
    if _is_legal_name(name) is None:
        raise InvalidTopic(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics,"
            " '.', '_' and '-'"
        )
