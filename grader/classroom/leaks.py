"""The last look at a finished release: is there anything in it that should be sealed?

Works on the release as it will be handed out, not on what was meant to go in.
Every file is looked at as code, as text and as a container, containers within
containers too, so that an answer left in a cache, a `.git`, an archive or a
notebook is found.  Kinds of file that a release never has are leaks as they are.
"""

from __future__ import annotations

import ast
import base64
import binascii
import bz2
import gzip
import html
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.fragments import MIN_LINE_CHARS, Sealed, squeezed, statement_keys
from grader.seal import is_sealed

KINDS_OF_FILE = frozenset(
    {
        "",
        ".py",
        ".md",
        ".toml",
        ".json",
        ".txt",
        ".age",
        ".tape",
        ".jinja",
        ".html",
        ".css",
        ".js",
        ".svg",
        ".typed",
        ".cfg",
        ".in",
    }
)
"""The suffixes that a release's files have."""

FORBIDDEN_NAMES = re.compile(
    r"""^(?: \.git | \.hg | \.svn | __pycache__ | \.[a-z_]+_cache | \.ipynb_checkpoints | \.kit | \.venv
        | .*\.py[co] | .*~ | .*\.(?:sw[a-p]|bak|orig|rej|tmp|log|patch|diff|ipynb|egg-info) | \#.*\# )$""",
    re.X | re.I,
)
"""Names of caches, version control, editor leftovers: none of them has a place in a release, whatever is in it."""

_AGE_IDENTITY = re.compile(r"age-secret-key-1[a-z0-9]{58}", re.I)
_DEPTH = 6
_BASE64_CHARS = 64
_UNPACKED_BYTES = 256 << 20
_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{60,80}\r?\n[ \t]*)*[A-Za-z0-9+/]{16,}={0,2}")


@dataclass(frozen=True)
class Leak:
    """Something in a release that must not be there: the file (and the way into it), and what it is."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


def find_leaks(folder: Path, sealed: Sequence[Sealed], secrets: Sequence[str] = ()) -> list[Leak]:
    """Every leak in the release at ``folder``, by path.

    ``secrets`` are texts that may appear nowhere, white space and dashes apart: the codes.
    """
    scanner = Scanner(sealed, secrets)
    leaks: list[Leak] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            leaks.append(Leak(name, "is a link"))
            continue
        if FORBIDDEN_NAMES.match(path.name):
            leaks.append(Leak(name, "is a cache, version control or an editor's leftover"))
        if path.is_dir():
            continue
        if path.suffix.casefold() not in KINDS_OF_FILE and not FORBIDDEN_NAMES.match(path.name):
            leaks.append(Leak(name, f"is a kind of file that a release does not have ({path.suffix})"))
        leaks += scanner.scan(name, path.read_bytes())
    return list(dict.fromkeys(leaks))


def leaks_in_text(name: str, text: str, sealed: Sequence[Sealed]) -> list[Leak]:
    """The leaks in one text; what feedback pages are checked with."""
    return list(dict.fromkeys(Scanner(sealed, ()).scan(name, text.encode())))


class Scanner:
    """Looks for fragments of the sealed texts in bytes of any kind."""

    def __init__(self, sealed: Sequence[Sealed], secrets: Sequence[str]) -> None:
        self._statements: dict[str, str] = {}
        self._lines: dict[str, list[tuple[str, str]]] = {}
        for text in sealed:
            for key, line in text.statements.items():
                self._statements.setdefault(key, f"holds code of {text.name}, line {line}")
            for key, line in text.lines.items():
                self._lines.setdefault(key[:MIN_LINE_CHARS], []).append((key, f"holds line {line} of {text.name}"))
        self._secrets = [squeezed(secret).replace("-", "").casefold() for secret in secrets]

    def scan(self, name: str, data: bytes, depth: int = 0) -> Iterator[Leak]:
        """Every leak in ``data``, which is called ``name``."""
        if is_sealed(data):
            return
        for text in _as_texts(data):
            for what in sorted(set(self._in_text(text))):
                yield Leak(name, what)
        if depth < _DEPTH:
            for inner, contents in _inside(data):
                yield from self.scan(f"{name} › {inner}", contents, depth + 1)

    def _in_text(self, text: str) -> Iterator[str]:
        for block in _code_in(text):
            for key, _ in statement_keys(block):
                if key in self._statements:
                    yield self._statements[key]
        packed = squeezed(text)
        for at in range(len(packed) - MIN_LINE_CHARS + 1):
            for line, what in self._lines.get(packed[at : at + MIN_LINE_CHARS], ()):
                if packed.startswith(line, at):
                    yield what
        if self._secrets:
            bare = packed.replace("-", "").casefold()
            if any(secret in bare for secret in self._secrets):
                yield "holds a code that opens a sealed exercise"
            if _AGE_IDENTITY.search(packed):
                yield "holds an age identity"


def _as_texts(data: bytes) -> Iterator[str]:
    """The bytes read as text in the ways that hide code from a search: encodings, and escapes of strings and HTML."""
    plain = data.decode("utf-8", "replace")
    yield plain
    if "&" in plain and (unescaped := html.unescape(plain)) != plain:
        yield unescaped
    if "\\" in plain:
        yield plain.replace("\\r", "").replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"').replace("\\'", "'")
    if data.count(0) > len(data) // 8:
        for encoding in ("utf-16-le", "utf-16-be"):
            yield data.decode(encoding, "replace")


def _code_in(text: str) -> Iterator[str]:
    """The pieces of a text that may be Python: all of it, fenced blocks, string literals with lines in them."""
    yield text
    for match in re.finditer(r"^[ \t]*(```|~~~)[^\n]*\n(.*?)^[ \t]*\1", text, re.M | re.S):
        yield match[2]
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            yield from _code_in(node.value)


def _inside(data: bytes) -> Iterator[tuple[str, bytes]]:
    """What is packed in ``data``: archive members, compressed streams, base64."""
    try:
        if zipfile.is_zipfile(io.BytesIO(data)):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for member in archive.infolist():
                    if not member.is_dir() and member.file_size <= _UNPACKED_BYTES:
                        yield member.filename, archive.read(member)
            return
        if data[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as plain:
                for info in plain:
                    inside = plain.extractfile(info) if info.isreg() and info.size <= _UNPACKED_BYTES else None
                    if inside is not None:
                        yield info.name, inside.read()
            return
    except (zipfile.BadZipFile, tarfile.TarError, RuntimeError, NotImplementedError, zlib.error, OSError):
        pass
    for magic, name, unpack in (
        (b"\x1f\x8b", "gzip", gzip.decompress),
        (b"BZh", "bzip2", bz2.decompress),
        (b"\xfd7zXZ", "xz", lzma.decompress),
        (b"\x78", "zlib", zlib.decompress),
    ):
        if data.startswith(magic):
            try:
                yield name, unpack(data)
            except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
                continue
    for match in _BASE64.finditer(data):
        text = b"".join(match[0].split())
        if len(text) < _BASE64_CHARS:
            continue
        try:
            yield "base64", base64.b64decode(text[: len(text) // 4 * 4])
        except (binascii.Error, ValueError):
            continue
