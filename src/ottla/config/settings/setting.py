"""One setting: its name, what it may be, what it is by default; and the error when someone gives it something else."""

from dataclasses import dataclass
from enum import StrEnum

from ottla.config.settings.checks import check_of
from ottla.config.settings.values import InvalidValue, SettingType, Value, parse_value


class InvalidSetting(Exception):
    """A setting cannot have the value given, alone or beside the others: which setting, what value, and why."""

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
    """How a broker's setting can be changed while it runs."""

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
    """What is allowed, in the words of `checks.py`."""
    importance: Importance
    update: UpdateMode | None
    """None for a setting of a topic or group, which is set on the topic or group itself, and for an internal one."""
    required: bool = False
    internal: bool = False
    description: str = ""
    """What it does, in a sentence; the settings of Kafka have none here."""

    def parse(self, text: str) -> Value:
        """The value of a text; raises InvalidSetting."""
        try:
            return check_of(self.type, self.valid)(parse_value(self.type, text))
        except InvalidValue as wrong:
            raise InvalidSetting(self.name, text, str(wrong)) from None

    def check(self, value: Value, *, given_as: str) -> Value:
        """The value if it is allowed, when it comes from a setting of another name; raises InvalidSetting."""
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
