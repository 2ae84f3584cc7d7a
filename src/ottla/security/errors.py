"""What is wrong with the settings of security."""


class InvalidSecurity(Exception):
    """A setting that cannot be, or not beside the others, or names keys that cannot be had: which one, and why."""

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting
        self.reason = reason
