"""The exception for bytes that break the protocol.

Every reader in this package raises ProtocolError, and nothing else, for bytes that it cannot accept. ProtocolError is
not an answer to a client: the edge decides how to answer a malformed request or batch.
"""


class ProtocolError(Exception):
    """Bytes that break the protocol. The message says what is wrong and at which byte."""

    def __init__(self, what: str, *, position: int | None = None, within: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.position = position
        self.within = within

    def __str__(self) -> str:
        if self.position is None:
            return f"{self.what} in {self.within}" if self.within else self.what
        return f"{self.what} at byte {self.position}" + (f" of {self.within}" if self.within else "")
