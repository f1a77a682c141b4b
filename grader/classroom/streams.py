"""Decompression in bounded pieces: gzip, bzip2 and xz, none of which may take much memory or never end."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

_CHUNK_BYTES = 1 << 16
_XZ_MEMORY_BYTES = 128 << 20


class TooLarge(Exception):
    """More came out than was allowed."""


def decompressed(file: BinaryIO) -> Iterator[bytes]:
    """The plain tar inside ``file``, in pieces; a decompressor that would need much memory is refused."""
    magic = file.read(6)
    file.seek(0)
    make: Callable[[], _Decompressor] | None = None
    if magic.startswith(b"\x1f\x8b"):
        make = _Gzip
    elif magic.startswith(b"BZh"):
        make = _bzip2
    elif magic.startswith(b"\xfd7zXZ"):
        make = _xz
    if make is None:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
        return
    engine = make()
    pending = b""
    while True:
        if not pending and engine.needs_input:
            pending = file.read(_CHUNK_BYTES)
            if not pending:
                last = engine.decompress(b"", _CHUNK_BYTES)  # what it still holds back
                if not last and not engine.eof:
                    raise EOFError("it ends in the middle")
                yield last
                if engine.eof:
                    return
                continue
        yield engine.decompress(pending, _CHUNK_BYTES)
        pending = b""
        if engine.eof:
            pending = engine.unused_data
            if not pending.strip(b"\0") and not (pending := file.read(_CHUNK_BYTES)).strip(b"\0"):
                return
            engine = make()


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gzip:
    """zlib's decompressor with the interface of the other two."""

    def __init__(self) -> None:
        self._engine = zlib.decompressobj(31)

    @property
    def eof(self) -> bool:
        return self._engine.eof

    @property
    def needs_input(self) -> bool:
        return not self._engine.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._engine.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._engine.decompress(self._engine.unconsumed_tail + data, max_length)


class _Plain:
    """bz2's or lzma's decompressor, as it is."""

    def __init__(self, engine: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> None:
        self._engine = engine

    @property
    def eof(self) -> bool:
        return self._engine.eof

    @property
    def needs_input(self) -> bool:
        return self._engine.needs_input

    @property
    def unused_data(self) -> bytes:
        return self._engine.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._engine.decompress(data, max_length)


def _bzip2() -> _Decompressor:
    return _Plain(bz2.BZ2Decompressor())


def _xz() -> _Decompressor:
    return _Plain(lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES))


class Capped:
    """A readable over pieces.

    Raises:
        TooLarge: the pieces come to more than the cap.
    """

    def __init__(self, pieces: Iterator[bytes], cap_bytes: int) -> None:
        self._pieces = pieces
        self._cap_bytes = cap_bytes
        self._given = 0
        self._buffer = bytearray()

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes; all of them when negative."""
        if size < 0 or size > self._cap_bytes:
            size = self._cap_bytes + 1
        while len(self._buffer) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._buffer += piece
            if self._given + len(self._buffer) > self._cap_bytes:
                raise TooLarge
        out = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._given += len(out)
        return out
