from ottla.wire.varint import Buffer

def scan(data: Buffer, start: int, count: int, base_timestamp: int, /) -> tuple[int, int, bool] | None: ...
def inspect(
    batch: Buffer,
    payload: Buffer | None,
    crc: int,
    max_bytes: int,
    earliest: int,
    latest: int,
    needs_keys: bool,
    /,
) -> tuple[int, ...] | None: ...
