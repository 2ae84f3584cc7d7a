"""Mutated frames, as a broken or hostile peer might send them."""

from collections.abc import Iterator
from random import Random

LARGE = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f")
NASTY = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\x80" * 6, *LARGE)


def mutations(frame: bytes, random: Random, count: int) -> Iterator[bytes]:
    """Yield `count` variations of a frame: bytes changed, removed, repeated, or overwritten with wrong lengths."""
    for _ in range(count):
        mutant = bytearray(frame)
        for _ in range(random.choice((1, 1, 2, 5))):
            position = random.randrange(len(mutant) + 1)
            match random.randrange(5):
                case 0 if position < len(mutant):
                    mutant[position] = random.randrange(256)
                case 1:
                    nasty = random.choice(NASTY)
                    mutant[position : position + len(nasty)] = nasty
                case 2:
                    del mutant[position : position + random.choice((1, 4, 50))]
                case 3:
                    mutant[position:position] = random.randbytes(random.choice((1, 4, 20)))
                case _:
                    mutant[position:position] = mutant[position : position + 40]
        yield bytes(mutant)
