"""X25519, HKDF and ChaCha20 from RFC 7748, RFC 5869 and RFC 8439: slow, and only for comparison."""

from __future__ import annotations

import hashlib
import hmac
import struct

P = 2**255 - 19


def x25519(scalar: bytes, point: bytes) -> bytes:
    """Return the shared secret of a private and a public key (Montgomery ladder of RFC 7748)."""
    k = int.from_bytes(scalar, "little") & ~7 & ~(128 << 8 * 31) | (64 << 8 * 31)
    u = int.from_bytes(point, "little") & (2**255 - 1)
    x1, x2, z2, x3, z3, swap = u, 1, 0, u, 1, 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % P, b * b % P, d * a % P, c * b % P
        e = (aa - bb) % P
        x3, z3 = (da + cb) ** 2 % P, x1 * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def hkdf(secret: bytes, info: bytes, length: int, salt: bytes = b"") -> bytes:
    """Return the key that HKDF-SHA256 derives."""
    pseudorandom = hmac.new(salt or bytes(32), secret, hashlib.sha256).digest()
    block, found, counter = b"", b"", 1
    while len(found) < length:
        block = hmac.new(pseudorandom, block + info + bytes([counter]), hashlib.sha256).digest()
        found, counter = found + block, counter + 1
    return found[:length]


def chacha20(key: bytes, start: bytes, n_bytes: int) -> bytes:
    """Return the key stream. ``start`` has 16 bytes: a counter of 32 bits and a nonce of 96 bits."""
    (counter,) = struct.unpack("<I", start[:4])
    found = b""
    while len(found) < n_bytes:
        head = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
        state = [*head, *struct.unpack("<8I", key), counter & 0xFFFFFFFF, *struct.unpack("<3I", start[4:])]
        mixed = list(state)
        for _ in range(10):
            for a, b, c, d in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
                _quarter_round(mixed, a, b, c, d)
            for a, b, c, d in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
                _quarter_round(mixed, a, b, c, d)
        words = [(x + y) & 0xFFFFFFFF for x, y in zip(state, mixed, strict=True)]
        found, counter = found + struct.pack("<16I", *words), counter + 1
    return found[:n_bytes]


def _quarter_round(s: list[int], a: int, b: int, c: int, d: int) -> None:
    for x, y, z, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = (s[x] + s[y]) & 0xFFFFFFFF
        value = s[z] ^ s[x]
        s[z] = (value << bits | value >> (32 - bits)) & 0xFFFFFFFF
