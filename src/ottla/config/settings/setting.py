"""A setting with its type, default and allowed values, and the error for an invalid value."""

from dataclasses import dataclass
from enum import StrEnum

from ottla.config.settings.checks import check_of
from ottla.config.settings.values import InvalidValue, SettingType, Value, parse_value


class InvalidSetting(Exception):
    """The value of a setting is invalid, in itself or together with other settings."""

    def __init__(self, name: str, value: str | None, reason: str, message: str | None = None) -> None:
        super().__init__(message or f"Invalid value {value} for configuration {name}: {reason}")
        self.name = name
        self.value = value
        self.reason = reason


class Importance(StrEnum):
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class UpdateMode(StrEnum):
    """Whether and how a broker's setting can be changed while it runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as Kafka declares it."""

    name: str
    type: SettingType
    default: str | None
    valid: str
    """The allowed values, in the notation of `checks.py`."""
    importance: Importance
    update: UpdateMode | None
    """None for settings of topics and groups, which are always dynamic, and for internal settings."""
    required: bool = False
    internal: bool = False
    description: str = ""
    """One sentence about Ottla's own settings. Empty for Kafka's."""

    def parse(self, text: str) -> Value:
        """Parse and check a text. Raise InvalidSetting."""
        try:
            return check_of(self.type, self.valid)(parse_value(self.type, text))
        except InvalidValue as wrong:
            raise InvalidSetting(self.name, text, str(wrong)) from None

    def check(self, value: Value, *, given_as: str) -> Value:
        """Check a value that was given under another name. Raise InvalidSetting."""
        try:
            return check_of(self.type, self.valid)(value)
        except InvalidValue as wrong:
            raise InvalidSetting(given_as, str(value), f"{wrong} (for {self.name})") from None

    @property
    def default_value(self) -> Value:
        return None if self.default is None else self.parse(self.default)

    @property
    def is_sensitive(self) -> bool:
        return self.type is SettingType.PASSWORD
