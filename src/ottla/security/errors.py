"""The error for invalid security settings."""


class InvalidSecurity(Exception):
    """A security setting is invalid, conflicts with others, or names keys that cannot be loaded."""

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting
        self.reason = reason
