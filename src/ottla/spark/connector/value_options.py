"""The options for the format of values, and for what happens to values that cannot be decoded."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.spark.connector.option_values import OptionError, parse_choice, parse_number

VALUE_OPTIONS: Final[Mapping[str, str]] = {
    "value.format": "The format of values: `binary` (default), `string`, `json`, `avro` or `protobuf`.",
    ("value.schema"): (
        "The schema: a DDL string or JSON schema of Spark for `json`, an Avro schema, or a Protobuf descriptor or"
        " definition."
    ),
    "value.message": "The name of the Protobuf message, where the schema has more than one.",
    ("value.registry"): (
        "The address of a schema registry, such as `http://localhost:8081`; values carry its five-byte header."
    ),
    "value.registry.auth": "`user:password` for the registry.",
    "value.subject": "The subject in the registry (default: `TOPIC-value`).",
    "value.inferRecords": "The number of records from which the schema of `json` is inferred (default: 1000).",
    ("value.onError"): (
        "What to do with a value that cannot be decoded: `column` (default) sets the row's column `bad`; "
        "`deadLetter` sends the record to `value.deadLetterTopic`; `fail` fails the query."
    ),
    "value.deadLetterTopic": "The topic for records whose value cannot be decoded.",
}
"""The options for values and their descriptions, as the reference shows them."""
FORMATS: Final = ("binary", "string", "json", "avro", "protobuf")
_ACTIONS: Final = ("column", "deadletter", "fail")
_BY_FORMAT: Final[Mapping[str, tuple[str, ...]]] = {
    "value.schema": ("json", "avro", "protobuf"),
    "value.message": ("protobuf",),
    "value.registry": ("json", "avro", "protobuf"),
    "value.registry.auth": ("json", "avro", "protobuf"),
    "value.subject": ("json", "avro", "protobuf"),
    "value.inferRecords": ("json",),
    "value.onError": ("string", "json", "avro", "protobuf"),
    "value.deadLetterTopic": ("string", "json", "avro", "protobuf"),
}


class ValueOptions(NamedTuple):
    """The format of values, and what happens to bad ones: they go to a column or a topic, or fail the query."""

    format: str
    schema: str | None
    message: str | None
    registry: str | None
    registry_auth: str | None
    subject: str | None
    infer_records: int
    on_error: str
    dead_letter_topic: str | None

    @property
    def fails(self) -> bool:
        return self.on_error == "fail"

    @property
    def has_column(self) -> bool:
        """Whether there is a column `bad`."""
        return self.on_error == "column"


def parse_value_options(options: Mapping[str, str]) -> ValueOptions | None:
    """Parse the options for values from options with lower-case names. Return None if values stay bytes."""
    chosen = parse_choice("value.format", options.get("value.format", "binary"), FORMATS)
    for name, formats in _BY_FORMAT.items():
        if name.lower() in options and chosen not in formats:
            raise OptionError(name, f"has no effect with value.format={chosen}; it applies to {', '.join(formats)}")
    if chosen == "binary":
        return None
    registry = options.get("value.registry")
    if registry is not None and not registry.startswith(("http://", "https://")):
        raise OptionError("value.registry", f"{registry!r} is not a URL such as http://localhost:8081")
    for name in ("value.subject", "value.registry.auth"):
        if name in options and registry is None:
            raise OptionError(name, "requires value.registry, the address of the registry")
    topic = options.get("value.deadlettertopic")
    action = parse_choice("value.onError", options.get("value.onerror", "deadletter" if topic else "column"), _ACTIONS)
    if (action == "deadletter") != (topic is not None):
        missing, unused = (
            "is missing; value.onError=deadLetter requires it",
            f"has no effect with value.onError={action}",
        )
        raise OptionError("value.deadLetterTopic", missing if topic is None else unused)
    schema = options.get("value.schema")
    if chosen in ("avro", "protobuf") and schema is None and registry is None:
        raise OptionError("value.schema", f"is missing; value.format={chosen} requires it or value.registry")
    return ValueOptions(
        format=chosen,
        schema=schema,
        message=options.get("value.message"),
        registry=registry,
        registry_auth=options.get("value.registry.auth"),
        subject=options.get("value.subject"),
        infer_records=parse_number("value.inferRecords", options.get("value.inferrecords", "1000"), least=1),
        on_error=action,
        dead_letter_topic=topic,
    )
