"""The one exception for bytes that break the protocol.

Every reader of the wire package raises ProtocolError, and nothing else, for bytes it cannot accept, however broken they
are. It is not an answer to a client: what a broken request or batch means to its sender is decided at the edge.
"""


class ProtocolError(Exception):
    """Bytes that break the protocol: says what and where."""

    def __init__(self, what: str, *, at: int | None = None, of: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.at = at
        self.of = of

    def __str__(self) -> str:
        where = f" at byte {self.at}" if self.at is not None else ""
        within = f" of {self.of}" if where and self.of else f" in {self.of}" if self.of else ""
        return f"{self.what}{where}{within}"
