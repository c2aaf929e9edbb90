"""The order of rows as arithmetic: a keyed Feistel permutation, frozen for ever by test vectors.

Definition, format version 1. ``permute(p, n, key)`` is a bijection of [0, n):

1. ``b = max(2, bits of (n - 1))``. A value of b bits has a high part of ``ceil(b / 2)`` and a low part of
   ``floor(b / 2)`` bits, so the domain 2^b is below 2n for every n > 2, odd b included.
2. Twelve rounds. An even round XORs the high part with ``F(low)``, an odd round the low part with ``F(high)``. In
   round r ``F(x)`` is the topmost bits (as many as the changed part has) of ``(h XOR (h >> 32)) * C2`` where
   ``h = (x XOR K[r]) * C1``; all modulo 2^64, with C1 = 0x9E3779B97F4A7C15 and C2 = 0xD6E8FEB86659FD93.
3. A result of n or more goes through all rounds again until it is below n (cycle walking: still a bijection, and
   under two passes on average).
4. ``K[0..11]`` are the first 96 bytes, as little-endian 64-bit words, of SHA-256(name + "/0"), SHA-256(name + "/1"),
   SHA-256(name + "/2") in ASCII. The name says what is ordered: ``tpulaunch/1/seed=0/epoch=0/source=0/units``.

Twelve rounds, because smaller numbers of them are visibly uneven on few elements: over 6,000 keys the positions of a
permutation of five have a chi-square of 10.5 a degree of freedom after 6 rounds, 4.1 after 8, 2.6 after 10 and 1.3
after 12, which is what chance gives. A library's generator would not do: its order may change with its version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

#: Changes when any sentence of the definition above does; part of every key and of every cursor.
ORDER_VERSION = 1
NUM_ROUNDS = 12
#: Positions are int64 and a domain may be twice as large.
MOST_ELEMENTS = 1 << 62

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

_C1 = np.uint64(0x9E3779B97F4A7C15)
_C2 = np.uint64(0xD6E8FEB86659FD93)
_HALF_WORD = np.uint64(32)
_WORD = np.uint64(64)
_ONE = np.uint64(1)
#: Keeps the working set in the CPU's cache.
_CHUNK = 1 << 15


@lru_cache(maxsize=1 << 14)
def round_keys(name: str) -> UInt64s:
    """Return the twelve round keys of a permutation, uint64 [rounds], read-only.

    Args:
        name: What is ordered, ASCII, without the prefix that this function adds.
    """
    text = f"tpulaunch/{ORDER_VERSION}/{name}"
    digests = b"".join(hashlib.sha256(f"{text}/{part}".encode("ascii")).digest() for part in range(3))
    return np.frombuffer(digests, dtype="<u8", count=NUM_ROUNDS)


def keys_by_group(labels: Int64s, keys_of: Callable[..., UInt64s]) -> UInt64s:
    """Return round keys for places that belong to different permutations, uint64 [rounds, places].

    Args:
        labels: What tells the permutations apart, int64 [labels, places]. Equal neighbours share one call.
        keys_of: From the labels of a place to its round keys.
    """
    num_places = labels.shape[1]
    if not num_places:
        return np.empty((NUM_ROUNDS, 0), dtype=np.uint64)
    changes = np.flatnonzero(np.any(labels[:, 1:] != labels[:, :-1], axis=0)) + 1
    firsts = np.concatenate([[0], changes])
    keys = np.stack([keys_of(*map(int, labels[:, first])) for first in firsts], axis=1)
    repeats = np.diff(np.append(firsts, num_places))
    return keys[:, np.repeat(np.arange(len(firsts)), repeats)]


def permute(positions: Int64s, num_elements: int | Int64s, keys: UInt64s) -> Int64s:
    """Return what stands at each position of a keyed permutation.

    Args:
        positions: int64 [positions], each in [0, num_elements).
        num_elements: Size of the permutation, 1 to 2^62; or one for each position, int64 [positions].
        keys: From :func:`round_keys`, uint64 [rounds]; or one column for each position, uint64 [rounds, positions].

    Returns:
        int64 [positions]; distinct for distinct positions of one permutation.

    Raises:
        ValueError: A position outside its permutation, or a permutation that is too large.
    """
    sizes = np.broadcast_to(np.asarray(num_elements, dtype=np.int64), positions.shape)
    if positions.size and not (positions.min() >= 0 and np.all(positions < sizes) and sizes.max() <= MOST_ELEMENTS):
        raise ValueError(f"positions {positions.min()} to {positions.max()} of a permutation of {sizes.min()}")
    columns = np.broadcast_to(keys.reshape(NUM_ROUNDS, -1), (NUM_ROUNDS, positions.size))
    result = np.empty(positions.size, dtype=np.int64)
    for start in range(0, positions.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        result[part] = _walk(positions[part].astype(np.uint64), sizes[part].astype(np.uint64), columns[:, part])
    return result


def _walk(values: UInt64s, sizes: UInt64s, keys: UInt64s) -> UInt64s:
    low_bits, high_bits = _halves(sizes)
    values = _rounds(values, low_bits, high_bits, keys)
    outside = np.flatnonzero(values >= sizes)
    while outside.size:
        again = _rounds(values[outside], low_bits[outside], high_bits[outside], keys[:, outside])
        values[outside] = again
        outside = outside[again >= sizes[outside]]
    return values


def _halves(sizes: UInt64s) -> tuple[UInt64s, UInt64s]:
    if (sizes == sizes[0]).all():  # nearly always, and twenty times cheaper
        distinct, where = sizes[:1], np.zeros(len(sizes), np.int64)
    else:
        distinct, where = np.unique(sizes, return_inverse=True)
    bits = np.array([max(2, (int(size) - 1).bit_length()) for size in distinct], dtype=np.uint64)[where]
    low = bits >> _ONE
    return low, bits - low


def _rounds(values: UInt64s, low_bits: UInt64s, high_bits: UInt64s, keys: UInt64s) -> UInt64s:
    high = values >> low_bits
    low = values & ((_ONE << low_bits) - _ONE)
    drop_high, drop_low = _WORD - high_bits, _WORD - low_bits
    mixed, shifted = np.empty_like(values), np.empty_like(values)
    for number in range(NUM_ROUNDS):
        source, target, drop = (low, high, drop_high) if number % 2 == 0 else (high, low, drop_low)
        np.bitwise_xor(source, keys[number], out=mixed)
        np.multiply(mixed, _C1, out=mixed)
        np.right_shift(mixed, _HALF_WORD, out=shifted)
        np.bitwise_xor(mixed, shifted, out=mixed)
        np.multiply(mixed, _C2, out=mixed)
        np.right_shift(mixed, drop, out=mixed)
        np.bitwise_xor(target, mixed, out=target)
    return (high << low_bits) | low
