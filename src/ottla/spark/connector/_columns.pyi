from typing_extensions import Buffer

def fill(
    payload: Buffer,
    count: int,
    base_offset: int,
    last_delta: int,
    base_timestamp: int,
    append_time: int | None,
    first: int,
    stop: int,
    buffers: tuple[Buffer | None, ...],
    row: int,
    header: int,
    /,
) -> tuple[int, int] | None: ...
