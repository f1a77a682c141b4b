"""Reading what a student handed in without ever writing it anywhere.

A folder, a zip or a tar becomes a mapping from clean relative names to the bytes
of the Python files.  Nothing is extracted, so no name in an archive can reach a
disk; names, links and sizes are checked all the same, because a submission that
tries is one an instructor wants to hear of.  Whatever is wrong is a `Rejected`
with one sentence, about this submission alone.
"""

from __future__ import annotations

import io
import os
import re
import stat
import struct
import tarfile
import unicodedata
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from grader.classroom.streams import Capped, TooLarge, decompressed
from grader.errors import RequestError

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
IGNORED_FOLDERS = frozenset({"__macosx", "__pycache__", "node_modules", "venv", "env", "site-packages"})
_CHUNK_BYTES = 1 << 16
_TAR_OVERHEAD_BYTES = 8 << 20  # headers and padding of as many members as may be
_ZIP_END = struct.Struct("<4s4H2LH")
_ZIP64_END = struct.Struct("<4sQ2H2L4Q")
_ZIP64_LOCATOR_BYTES = 20
_ZIP_ENTRY_MIN_BYTES = 46


class Rejected(RequestError):
    """One submission cannot be taken, and why; the rest of the class goes on."""


@dataclass(frozen=True)
class Limits:
    """What one submission may hold.  ``depth`` counts archives within archives."""

    files: int = 2_000
    total_bytes: int = 64 << 20
    python_file_bytes: int = 1 << 20
    depth: int = 2


@dataclass
class Contents:
    """The Python files of a submission by their clean relative name, and what was left aside."""

    python: dict[str, bytes] = field(default_factory=dict)
    oversized: dict[str, int] = field(default_factory=dict)
    """Python files over the limit, with their size in bytes."""
    others: list[str] = field(default_factory=list)
    """Names of everything else that was seen and not read."""


def is_archive(name: str) -> bool:
    """True for a name with the suffix of an archive that can be read."""
    return name.casefold().endswith(ARCHIVE_SUFFIXES)


def without_suffix(name: str) -> str:
    """A file's name without its archive or ``.py`` suffix."""
    for suffix in sorted((*ARCHIVE_SUFFIXES, ".py"), key=len, reverse=True):
        if name.casefold().endswith(suffix):
            return name[: -len(suffix)]
    return name


def read_entry(path: Path, limits: Limits | None = None) -> Contents:
    """Everything in the folder, archive or single file at ``path``.

    Raises:
        Rejected: links, devices, unsafe or colliding names, too many files or bytes, a damaged archive.
        OSError: the disk failed; nobody's submission is to blame.
    """
    reader = _Reader(limits or Limits())
    mode = os.lstat(path).st_mode
    if stat.S_ISDIR(mode):
        reader.folder(path, "")
    elif is_archive(path.name):
        with _open_regular(path, path.name) as file:
            reader.archive(file, path.name, "", 1)
    else:
        with _open_regular(path, path.name) as file:
            reader.take(clean_name(path.name), os.fstat(file.fileno()).st_size, file)
    return reader.contents


def clean_name(raw: str) -> str:
    """The relative name that ``raw`` means, with forward slashes, in NFC.

    Raises:
        Rejected: it is absolute, climbs with ``..``, or holds a control character, or is beyond all measure long.
    """
    shown = shown_name(raw)
    if any(unicodedata.category(letter) == "Cc" for letter in raw):
        raise Rejected(f"the name {shown} holds a control character")
    name = unicodedata.normalize("NFC", raw.replace("\\", "/"))
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        raise Rejected(f"the name {shown} is not relative: it would land outside the submission")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Rejected(f"the name {shown} climbs out of the submission with '..'")
    if len(parts) > 32 or any(len(part.encode("utf-8", "surrogateescape")) > 255 for part in parts):
        raise Rejected(f"the name {shown} is too long or too deep")
    return "/".join(parts)


def shown_name(raw: str) -> str:
    """``raw`` for a message: quoted, escaped where it does not print, and cut."""
    text = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in raw)
    return f"'{text[:80]}…'" if len(text) > 80 else f"'{text}'"


def ignored(name: str) -> bool:
    """True for what lies in a hidden folder, a cache or an environment: seen, never read."""
    return any(part.startswith(".") or part.casefold() in IGNORED_FOLDERS for part in name.split("/"))


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Reader:
    """Walks one submission; holds what was seen so far, so that the limits are over all of it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.contents = Contents()
        self._seen: dict[str, str] = {}
        self._count = 0
        self._bytes = 0

    # ---------------------------------------------------------------------------------- one member

    def count(self) -> None:
        self._count += 1
        if self._count > self.limits.files:
            raise Rejected(f"it holds more than {self.limits.files:,} files")

    def spend(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._bytes > self.limits.total_bytes:
            raise Rejected(f"unpacked it is larger than {self.limits.total_bytes >> 20} MiB")

    def take(self, name: str, size_bytes: int, file: _Readable) -> None:
        """Keep a Python file, remember the name of any other; the size is what the container claims."""
        if not name:
            return
        key = unicodedata.normalize("NFC", name.casefold())
        if key in self._seen:
            other = self._seen[key]
            if other == name:
                raise Rejected(f"it holds {shown_name(name)} twice")
            raise Rejected(f"{shown_name(other)} and {shown_name(name)} are the same file on many systems")
        self._seen[key] = name
        if ignored(name) or not name.casefold().endswith(".py"):
            self.spend(size_bytes)
            self.contents.others.append(name)
            return
        data = _read_up_to(file, self.limits.python_file_bytes + 1)
        self.spend(len(data))
        if len(data) > self.limits.python_file_bytes:
            self.contents.oversized[name] = max(size_bytes, len(data))
        else:
            self.contents.python[name] = data

    def nested(self, name: str, file: _Readable, depth: int) -> None:
        """An archive inside: read into memory under what is left of the byte limit, then walked."""
        if depth > self.limits.depth:
            raise Rejected(f"{shown_name(name)} is an archive in an archive in an archive")
        data = _read_up_to(file, self.limits.total_bytes - self._bytes + 1)
        self.spend(len(data))
        self.archive(io.BytesIO(data), name, f"{name}/", depth)

    # -------------------------------------------------------------------------------------- folders

    def folder(self, path: Path, prefix: str) -> None:
        for entry in sorted(os.scandir(path), key=lambda item: item.name):
            name = clean_name(prefix + entry.name)
            self.count()
            info = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(info.st_mode):
                raise Rejected(f"{shown_name(name)} is a link")
            if stat.S_ISDIR(info.st_mode):
                if not ignored(name):
                    self.folder(Path(entry.path), f"{name}/")
                continue
            with _open_regular(Path(entry.path), name) as file:
                if is_archive(name) and not ignored(name):
                    self.nested(name, file, 1)
                else:
                    self.take(name, info.st_size, file)

    # ------------------------------------------------------------------------------------- archives

    def archive(self, file: _Readable, name: str, prefix: str, depth: int) -> None:
        """Walk an archive, from memory: whatever goes wrong in there is then the archive's doing, not the disk's."""
        data = _read_up_to(file, self.limits.total_bytes + 1)
        if len(data) > self.limits.total_bytes:
            raise Rejected(f"{shown_name(name)} is larger than {self.limits.total_bytes >> 20} MiB")
        try:
            if name.casefold().endswith(".zip"):
                self._zip(io.BytesIO(data), prefix, depth)
            else:
                self._tar(io.BytesIO(data), prefix, depth)
        except Rejected:
            raise
        except TooLarge as error:
            raise Rejected(f"unpacked it is larger than {self.limits.total_bytes >> 20} MiB") from error
        except NotImplementedError as error:
            raise Rejected(f"{shown_name(name)} is packed in a way that cannot be read: {error}") from error
        except Exception as error:  # the parsers raise nearly anything on bytes made to confuse them
            raise Rejected(f"{shown_name(name)} is damaged or no archive: {error}") from error

    def _zip(self, file: BinaryIO, prefix: str, depth: int) -> None:
        directory_bytes = _zip_directory_bytes(file)
        if directory_bytes > (self.limits.files + 1) * (_ZIP_ENTRY_MIN_BYTES + 1024):
            raise Rejected(f"it holds more than {self.limits.files:,} files")
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                name = clean_name(prefix + _zip_name(member))
                self.count()
                kind = stat.S_IFMT(member.external_attr >> 16)
                if member.is_dir():
                    continue
                if kind and kind != stat.S_IFREG and not ignored(name):
                    raise Rejected(f"{shown_name(name)} is a link or a device")
                if member.flag_bits & 0x1:
                    raise Rejected("it is locked with a password")
                with archive.open(member) as inside:
                    self._member(name, member.file_size, inside, depth)

    def _tar(self, file: BinaryIO, prefix: str, depth: int) -> None:
        plain = Capped(decompressed(file), self.limits.total_bytes + _TAR_OVERHEAD_BYTES)
        with tarfile.open(fileobj=cast(BinaryIO, plain), mode="r|") as archive:
            for member in archive:
                name = clean_name(prefix + member.name)
                self.count()
                if member.isdir():
                    continue
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    if ignored(name):
                        continue
                    raise Rejected(f"{shown_name(name)} is a link or a device")
                inside = archive.extractfile(member)
                assert inside is not None  # a regular member always has contents
                self._member(name, member.size, inside, depth)

    def _member(self, name: str, size_bytes: int, inside: _Readable, depth: int) -> None:
        if is_archive(name) and not ignored(name):
            self.nested(name, inside, depth + 1)
        else:
            self.take(name, size_bytes, inside)


def _open_regular(path: Path, name: str) -> BinaryIO:
    """Open a regular file that has one name; a link or a FIFO put there meanwhile is refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if os.path.islink(path):
            raise Rejected(f"{shown_name(name)} is a link") from error
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise Rejected(f"{shown_name(name)} is not a regular file") from error
        raise
    file = os.fdopen(descriptor, "rb")
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        file.close()
        raise Rejected(f"{shown_name(name)} is not a regular file")
    if info.st_nlink > 1:
        file.close()
        raise Rejected(f"{shown_name(name)} is a hard link: the same file has another name elsewhere")
    return file


def _read_up_to(file: _Readable, limit_bytes: int) -> bytes:
    """At most ``limit_bytes``, whatever the container says the size is."""
    chunks = []
    left = limit_bytes
    while left > 0:
        chunk = file.read(min(left, _CHUNK_BYTES))
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _zip_name(member: zipfile.ZipInfo) -> str:
    """The member's name; tools that forget the UTF-8 flag write UTF-8 all the same, more often than code page 437."""
    if member.flag_bits & 0x800:
        return member.orig_filename
    try:
        return member.orig_filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return member.orig_filename


def _zip_directory_bytes(file: BinaryIO) -> int:
    """The size of a zip's directory by its end record: what zipfile will turn into objects before one can stop it."""
    size = file.seek(0, os.SEEK_END)
    tail_start = max(0, size - (1 << 16) - _ZIP_END.size - _ZIP64_LOCATOR_BYTES - _ZIP64_END.size)
    file.seek(tail_start)
    tail = file.read()
    file.seek(0)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + _ZIP_END.size:
        raise zipfile.BadZipFile("it has no directory")
    directory_bytes = int(_ZIP_END.unpack_from(tail, at)[5])
    locator = at - _ZIP64_LOCATOR_BYTES
    if locator >= 0 and tail[locator : locator + 4] == b"PK\x06\x07":
        record = locator - _ZIP64_END.size
        if record < 0 or tail[record : record + 4] != b"PK\x06\x06":
            raise zipfile.BadZipFile("its directory is not where it should be")
        directory_bytes = max(
            directory_bytes if directory_bytes != 0xFFFFFFFF else 0, _ZIP64_END.unpack_from(tail, record)[8]
        )
    return directory_bytes
