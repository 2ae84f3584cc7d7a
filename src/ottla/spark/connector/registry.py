"""A client of a schema registry's HTTP API, and the frame of values that its serializers write.

A framed value begins with a zero byte and the four-byte schema id. The schema of an id never changes, so each process
requests it once.
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
_schemas: dict[tuple[str, str], "Schema"] = {}


class Schema(NamedTuple):
    """A schema of the registry: its type (AVRO, JSON or PROTOBUF) and text."""

    kind: str
    text: str
    id: int | None = None


class BadFrame(ValueError):
    """A value lacks the frame of a registry's serializers."""


class UnknownSchema(ValueError):
    """A value has the id of a schema that the registry does not have."""


def unframe(value: bytes) -> tuple[int, bytes]:
    """Return the schema id and the content of a framed value; raise BadFrame."""
    if len(value) < FRAME.size:
        raise BadFrame(f"not framed for a schema registry: the value has {len(value)} bytes, a frame has {FRAME.size}")
    magic, schema_id = FRAME.unpack_from(value)
    if magic != 0:
        raise BadFrame(f"not framed for a schema registry: the value begins with byte {value[0]} instead of 0")
    return schema_id, value[FRAME.size :]


class Registry:
    """A schema registry at one address."""

    def __init__(self, address: str, auth: str | None = None) -> None:
        self._address = address.rstrip("/")
        self._auth = auth

    def by_id(self, schema_id: int, *, serialized: bool = False) -> Schema:
        """Return a schema; raise UnknownSchema, or OptionError if the registry does not answer."""
        key = self._address, f"{schema_id}{'/serialized' if serialized else ''}"
        if key not in _schemas:
            suffix = "?format=serialized" if serialized else ""
            answer = self._get(f"/schemas/ids/{schema_id}{suffix}")
            if answer is None:
                raise UnknownSchema(f"the registry at {self._address} has no schema {schema_id}")
            _schemas[key] = self._parse_schema(answer, schema_id)
        return _schemas[key]

    def latest(self, subject: str, *, serialized: bool = False) -> Schema:
        """Return the latest schema of a subject; raise OptionError if the subject does not exist."""
        suffix = "?format=serialized" if serialized else ""
        answer = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest{suffix}")
        if answer is None:
            raise OptionError(
                "value.subject",
                f"the registry at {self._address} has no subject {subject!r}; register it, or set value.subject",
            )
        return self._parse_schema(answer, answer.get("id"))

    def _parse_schema(self, answer: dict[str, Any], schema_id: int | None) -> Schema:
        if answer.get("references"):
            raise OptionError(
                "value.registry",
                f"schema {schema_id} has references, which are not supported; give value.schema instead",
            )
        return Schema(str(answer.get("schemaType") or "AVRO"), str(answer["schema"]), schema_id)

    def _get(self, path: str) -> dict[str, Any] | None:
        """Return the answer to a request, or None for 404."""
        request = urllib.request.Request(self._address + path)  # noqa: S310 (http and https: the option was checked)
        request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
        if self._auth is not None:
            request.add_header("Authorization", "Basic " + base64.b64encode(self._auth.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
                answer = json.loads(response.read(_MAX_BYTES))
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.NOT_FOUND:
                return None
            raise OptionError(
                "value.registry",
                f"{self._address} answers {error.code} {error.reason}; check the address and value.registry.auth",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise OptionError("value.registry", f"{self._address} cannot be reached: {reason}") from error
        except ValueError as error:
            raise OptionError(
                "value.registry", f"{self._address} does not answer in JSON; check the address"
            ) from error
        if not isinstance(answer, dict) or "schema" not in answer:
            raise OptionError(
                "value.registry", f"{self._address} is not a schema registry: {path} has no schema; check the address"
            )
        return answer
