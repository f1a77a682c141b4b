"""Sealing an exercise's answers, and the code that opens them.

One release gives every exercise a code of its own.  The code is 120 random bits
in letters a person can read over a table; the age identity that opens the sealed
file is derived from it, so nothing but the code is needed and no slow
password stretching either.  The release publishes, per exercise, a hash of the
code, of the sealed file and of what is inside: a wrong code is told from a
damaged file, and a student can see afterwards that the sealed tests are the
ones that were sealed on the first day.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import msgspec

from grader.errors import GraderFault, RequestError

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32: no I, L, O or U, so that a code can be read aloud."""

_CODE_CHARS = 24  # 120 bits; one more is the check
_GROUP_CHARS = 5
_CHECK_PRIME = 31  # below 32, so that a check value is one letter; coprime to 32, so that swaps and slips change it
_LOOKALIKES = str.maketrans({"O": "0", "I": "1", "L": "1"})
_AGE_HEADER = b"age-encryption.org/v1"


class Seal(msgspec.Struct, frozen=True):
    """What a release publishes about one sealed exercise; all hashes are SHA-256 in hexadecimal.

    ``recipient`` is the public age key that the file is sealed to.
    """

    slug: str
    code_sha256: str
    sealed_sha256: str
    contents_sha256: str
    recipient: str


class Manifest(msgspec.Struct, frozen=True):
    """A student kit's ``release.json``: what was released, and the hashes that a reveal is checked against.

    ``made`` is the date as YYYY-MM-DD; ``public_tests`` and ``files`` (relative name to SHA-256) are per exercise.
    """

    release: str
    kit_version: str
    made: str
    seals: dict[str, Seal]
    public_tests: dict[str, list[str]]
    files: dict[str, dict[str, str]]
    schema: int = 1


MANIFEST_NAME = "release.json"
SEALED_NAME = "sealed.age"


def read_manifest(content_root: Path) -> Manifest | None:
    """The manifest of the student kit at ``content_root``, or None where the content is no student kit.

    Raises:
        GraderFault: it is there and cannot be read.
    """
    path = content_root / MANIFEST_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise GraderFault(f"{path} cannot be read: {error}", "unpack the release again") from error


class _Bundle(msgspec.Struct, frozen=True):
    """What is sealed.  The salt keeps the published hash from confirming a guessed solution."""

    slug: str
    salt: bytes
    files: dict[str, bytes]


def new_code() -> str:
    """A fresh code: five groups of five letters, the last of them a check letter."""
    body = "".join(secrets.choice(ALPHABET) for _ in range(_CODE_CHARS))
    return written(body + _check_letter(body))


def written(code: str) -> str:
    """The code in groups of five, as it is printed and read aloud."""
    return "-".join(code[at : at + _GROUP_CHARS] for at in range(0, len(code), _GROUP_CHARS))


def normalised(code: str) -> str:
    """The code as it was meant: upper case, no spaces or dashes, O read as 0, I and L as 1.

    Raises:
        RequestError: it has the wrong length, a letter that no code has, or a check letter that does not fit.
    """
    plain = "".join(code.split()).replace("-", "").replace("–", "").replace("‑", "").upper().translate(_LOOKALIKES)
    hint = "a code is five groups of five letters and digits; copy it whole"
    odd = sorted({letter for letter in plain if letter not in ALPHABET})
    if odd:
        raise RequestError(f"no code has the letter {odd[0]!r} in it", hint)
    if len(plain) != _CODE_CHARS + 1:
        raise RequestError(f"a code has {_CODE_CHARS + 1} letters, and this one has {len(plain)}", hint)
    if _check_letter(plain[:-1]) != plain[-1]:
        raise RequestError("this code has a slip in it: its last letter does not fit the others", hint)
    return plain


def code_hash(code: str, slug: str) -> str:
    """The hash that a release publishes for ``code``: it names the exercise, so codes cannot be swapped unseen."""
    return hashlib.sha256(f"kit code\n{slug}\n{normalised(code)}".encode()).hexdigest()


def seal(slug: str, files: Mapping[str, bytes], code: str) -> tuple[bytes, Seal]:
    """Seal ``files`` (name to contents) under ``code``: the sealed file and what to publish about it.

    Raises:
        RequestError: the code is malformed.
        GraderFault: pyrage is not installed.
    """
    pyrage = encryption()
    identity = pyrage.x25519.Identity.from_str(_identity_text(code, slug))
    recipient = identity.to_public()
    inside = msgspec.msgpack.encode(_Bundle(slug, secrets.token_bytes(32), dict(sorted(files.items()))))
    sealed: bytes = pyrage.encrypt(inside, [recipient])
    return sealed, Seal(slug, code_hash(code, slug), _sha256(sealed), _sha256(inside), str(recipient))


def check_code(code: str, seal: Seal) -> None:
    """Compare ``code`` with the hash published at release, in constant time.

    Raises:
        RequestError: it is malformed, or not the code of this exercise.
    """
    if not hmac.compare_digest(code_hash(code, seal.slug), seal.code_sha256):
        raise RequestError(f"this is not the code of {seal.slug}", "every exercise has a code of its own")


def unseal(sealed: bytes, code: str, seal: Seal) -> dict[str, bytes]:
    """Open ``sealed`` with ``code``, once everything about it is as published.

    Raises:
        RequestError: a wrong code, or a sealed file that is not the published one.
        GraderFault: pyrage is not installed.
    """
    pyrage = encryption()
    check_code(code, seal)
    changed = RequestError(
        f"the sealed file of {seal.slug} is not the one that was published", "unpack the release again"
    )
    if not hmac.compare_digest(_sha256(sealed), seal.sealed_sha256):
        raise changed
    identity = pyrage.x25519.Identity.from_str(_identity_text(code, seal.slug))
    try:
        inside: bytes = pyrage.decrypt(sealed, [identity])
        bundle = msgspec.msgpack.decode(inside, type=_Bundle)
    except (pyrage.DecryptError, msgspec.DecodeError) as error:
        raise changed from error
    if not hmac.compare_digest(_sha256(inside), seal.contents_sha256) or bundle.slug != seal.slug:
        raise changed
    return bundle.files


def is_sealed(data: bytes) -> bool:
    """True for a file in the age format."""
    return data.startswith(_AGE_HEADER)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _check_letter(body: str) -> str:
    """A weighted sum over the letters: one wrong letter or two swapped neighbours change it (but for 0 and Z)."""
    total = sum((at + 1) * ALPHABET.index(letter) for at, letter in enumerate(body))
    return ALPHABET[total % _CHECK_PRIME]


def _identity_text(code: str, slug: str) -> str:
    """The age identity that ``code`` stands for in ``slug``, in the notation that age reads."""
    key = hmac.new(b"kit-grader seal v1", f"{slug}\n{normalised(code)}".encode(), hashlib.sha256).digest()
    return _bech32("age-secret-key-", key).upper()


def _bech32(prefix: str, data: bytes) -> str:
    """BIP 173's notation for bytes, which age writes its keys in."""
    letters = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
    bits = "".join(f"{byte:08b}" for byte in data)
    bits += "0" * (-len(bits) % 5)
    words = [int(bits[at : at + 5], 2) for at in range(0, len(bits), 5)]
    expanded = [ord(letter) >> 5 for letter in prefix] + [0] + [ord(letter) & 31 for letter in prefix]
    residue = _bech32_residue(expanded + words + [0] * 6) ^ 1
    check = [(residue >> 5 * (5 - at)) & 31 for at in range(6)]
    return prefix + "1" + "".join(letters[word] for word in words + check)


def _bech32_residue(words: list[int]) -> int:
    generators = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
    residue = 1
    for word in words:
        top = residue >> 25
        residue = (residue & 0x1FFFFFF) << 5 ^ word
        for at, generator in enumerate(generators):
            if top >> at & 1:
                residue ^= generator
    return residue


def encryption() -> ModuleType:
    """The package that seals and opens.

    Raises:
        GraderFault: it is not installed.
    """
    try:
        return importlib.import_module("pyrage")  # it carries no types
    except ImportError as error:
        raise GraderFault(
            "sealed exercises need the package pyrage, and it is not installed",
            "pip install pyrage; in a checkout: pip install -c constraints.txt -e '.[classroom]'",
        ) from error
