"""Damage by chance, the same each time: a few cases in ``make test``, thousands with ``make fuzz``."""

import os
import random

CASES = int(os.environ.get("NIGHTJAR_FUZZ_CASES", "60"))


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Returns a text that is not what it was: bits, bytes, numbers, or parts of it are others, gone or there twice."""
    place = chance.randrange(len(content))
    end = min(len(content), place + chance.choice([1, 2, 8, 64, 1000]))
    match chance.randrange(6):
        case 0:
            return content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]
        case 1:
            return content[:place] + content[end:]
        case 2:
            return content[:place] + chance.randbytes(end - place) + content[end:]
        case 3:
            return content[:end] + content[place:]
        case 4:
            odd = chance.choice([b"null", b'""', b"[]", b"{}", b"-1", b"1e400", b"true", b'"\\ud800"', b"[" * 5000])
            return content[:place] + odd + content[place:]
        case _:
            digit = str(chance.randrange(10)).encode()
            return content[:place] + content[place:].replace(chance.choice([b"0", b"1", b"5"]), digit, 1)
