"""The SCRAM credentials of a new cluster: parses `--add-scram` and creates the records (RFC 5802).

An argument is `SCRAM-SHA-256=[name=alice,password=secret]`. It may have `iterations` and `salt` (base64), and
`saltedpassword` (base64) with its salt instead of `password`. Values may be in double quotes.
"""

import base64
import binascii
import re

from ottla.protocol.messages.records.metadata_records import UserScramCredentialRecord
from ottla.security.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, Mechanism, salted_password, scram_keys

_integer = re.compile(r"[+-]?[0-9]{1,10}").fullmatch


class InvalidCredential(Exception):
    """An argument of --add-scram is malformed or unsafe. The message never contains a password."""


def credential_record(argument: str, *, salt: bytes) -> UserScramCredentialRecord:
    """Return the record for an argument. `salt` must be random; the argument may override it."""
    mechanism_name, equals, text = argument.strip().partition("=")
    mechanism = MECHANISMS.get(mechanism_name)
    if not equals:
        raise InvalidCredential("expected SCRAM-SHA-256=[name=...,password=...], but there is no equals sign")
    if mechanism is None:
        raise InvalidCredential(f"unknown mechanism {mechanism_name}; choose from {', '.join(MECHANISMS)}")
    if not (text.startswith("[") and text.endswith("]")):
        raise InvalidCredential(f"the value of {mechanism_name}= must be in square brackets")
    parts = dict(map(_part, text[1:-1].split(",")))
    name = parts.pop("name", None)
    if name is None:
        raise InvalidCredential("a credential needs a name")
    iterations = _iterations(parts.pop("iterations", str(MIN_ITERATIONS)))
    given_salt = parts.pop("salt", None)
    if given_salt is not None:
        salt = _decoded("salt", given_salt)
    salted = _salted_password(parts, mechanism, salt, iterations, has_salt=given_salt is not None)
    if parts:
        raise InvalidCredential(f"a credential has no field {', '.join(sorted(parts))}")
    keys = scram_keys(mechanism, salted)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism.number,
        salt=salt,
        stored_key=keys.stored,
        server_key=keys.server,
        iterations=iterations,
    )


def _part(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidCredential("each field of a credential must be name=value")
    if len(value) >= 2 and value.startswith('"') and value.endswith('"'):
        value = value[1:-1]
    return name, value


def _iterations(text: str) -> int:
    if not _integer(text):
        raise InvalidCredential(f"iterations {text!r} is not a number")
    if not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise InvalidCredential(f"iterations must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}, not {text}")
    return int(text)


def _salted_password(
    parts: dict[str, str], mechanism: Mechanism, salt: bytes, iterations: int, *, has_salt: bool
) -> bytes:
    password, salted = parts.pop("password", None), parts.pop("saltedpassword", None)
    if password is not None:
        return salted_password(mechanism, password, salt, iterations)
    if salted is None:
        raise InvalidCredential("a credential needs a password or a saltedpassword")
    if not has_salt:
        raise InvalidCredential("a saltedpassword needs the salt that it was derived with")
    return _decoded("saltedpassword", salted)


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidCredential(f"{name} is not base64") from None
