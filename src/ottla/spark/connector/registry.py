"""A schema registry, by its HTTP API, and the frame around values that were written with one.

A framed value begins with a zero byte and the schema's number in four. Schemas of a number never change, so each is
asked for once in a process.
"""

import base64
import http.client
import json
import struct
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final, NamedTuple

from ottla.spark.connector.option_values import OptionError

FRAME: Final = struct.Struct(">bI")
_TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 16 << 20
_known: dict[tuple[str, str], "Schema"] = {}


class Schema(NamedTuple):
    """A schema as the registry has it: AVRO, JSON or PROTOBUF, and its text."""

    kind: str
    text: str
    id: int | None = None


class BadFrame(ValueError):
    """A value without the frame that a registry's serializers put around it."""


class UnknownSchema(ValueError):
    """A value names a schema that the registry does not have."""


def unframe(value: bytes) -> tuple[int, bytes]:
    """The number of a value's schema, and what was written with it; raises BadFrame."""
    if len(value) < FRAME.size:
        raise BadFrame(f"it has {len(value)} bytes, and no schema's number in front")
    magic, number = FRAME.unpack_from(value)
    if magic != 0:
        raise BadFrame(f"it begins with byte {value[0]}, not with the 0 of a registry's frame")
    return number, value[FRAME.size :]


class Registry:
    """One registry."""

    def __init__(self, address: str, auth: str | None = None) -> None:
        self._address = address.rstrip("/")
        self._auth = auth

    def by_id(self, number: int, *, serialized: bool = False) -> Schema:
        """The schema of a number; raises UnknownSchema, or OptionError if the registry does not answer."""
        key = self._address, f"{number}{'/serialized' if serialized else ''}"
        if key not in _known:
            suffix = "?format=serialized" if serialized else ""
            found = self._ask(f"/schemas/ids/{number}{suffix}")
            if found is None:
                raise UnknownSchema(f"the registry at {self._address} has no schema {number}")
            _known[key] = self._schema(found, number)
        return _known[key]

    def latest(self, subject: str, *, serialized: bool = False) -> Schema:
        """The newest schema of a subject; raises OptionError if there is none."""
        suffix = "?format=serialized" if serialized else ""
        found = self._ask(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest{suffix}")
        if found is None:
            raise OptionError("value.subject", f"the registry at {self._address} has no subject {subject!r}")
        return self._schema(found, found.get("id"))

    def _schema(self, found: dict[str, Any], number: int | None) -> Schema:
        if found.get("references"):
            raise OptionError("value.registry", f"schema {number} refers to other schemas, which are not followed")
        return Schema(str(found.get("schemaType") or "AVRO"), str(found["schema"]), number)

    def _ask(self, path: str) -> dict[str, Any] | None:
        """The answer; None if there is no such thing."""
        request = urllib.request.Request(self._address + path)  # noqa: S310 (http and https: the option was checked)
        request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
        if self._auth is not None:
            request.add_header("Authorization", "Basic " + base64.b64encode(self._auth.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                found = json.loads(answer.read(_MAX_BYTES))
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.NOT_FOUND:
                return None
            raise OptionError("value.registry", f"{self._address} answers {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            raise OptionError("value.registry", f"{self._address} cannot be reached: {why}") from error
        except ValueError as error:
            raise OptionError("value.registry", f"{self._address} does not answer in JSON") from error
        if not isinstance(found, dict) or "schema" not in found:
            raise OptionError("value.registry", f"{self._address} is no schema registry: {path} has no schema")
        return found
