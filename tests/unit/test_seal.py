"""Sealing: a code opens its own exercise and nothing else, and slips are told from wrong codes."""

from __future__ import annotations

import random

import msgspec
import pytest

from grader import seal as seals
from grader.errors import RequestError

pytest.importorskip("pyrage")
FILES = {"solution.py": b"def f():\n    return 1\n", "hidden_tests.py": "# ü\n".encode(), "empty": b""}


def test_the_code_opens_what_it_sealed():
    code = seals.new_code()
    sealed, seal = seals.seal("gqa", FILES, code)
    assert seals.unseal(sealed, code, seal) == FILES
    assert seals.is_sealed(sealed)


def test_nothing_of_the_contents_or_the_code_shows_in_what_is_published():
    code = seals.new_code()
    sealed, seal = seals.seal("gqa", FILES, code)
    published = sealed + msgspec.json.encode(seal)
    for secret in (b"return 1", b"hidden_tests", code.encode(), code.replace("-", "").encode()):
        assert secret not in published


def test_a_code_typed_by_a_person_is_understood():
    code = seals.new_code()
    sealed, seal = seals.seal("gqa", FILES, code)
    sloppy = f"  {code.lower().replace('-', ' ').replace('0', 'o').replace('1', 'l')}\n"
    assert seals.unseal(sealed, sloppy, seal) == FILES


def test_the_code_of_another_exercise_is_refused():
    sealed, seal = seals.seal("gqa", FILES, seals.new_code())
    with pytest.raises(RequestError, match="not the code of gqa"):
        seals.unseal(sealed, seals.new_code(), seal)


def test_the_same_code_seals_two_exercises_under_two_keys():
    code = seals.new_code()
    _, first = seals.seal("gqa", FILES, code)
    _, second = seals.seal("moe", FILES, code)
    assert first.recipient != second.recipient
    assert first.code_sha256 != second.code_sha256


def test_a_single_wrong_letter_and_a_swap_of_neighbours_are_called_slips():
    rng = random.Random(0)
    for _ in range(50):
        code = seals.normalised(seals.new_code())
        at = rng.randrange(len(code) - 1)
        wrong = code[:at] + rng.choice(seals.ALPHABET) + code[at + 1 :]
        swapped = code[:at] + code[at + 1] + code[at] + code[at + 2 :]
        for broken in {wrong, swapped} - {code}:
            if {code[at], code[at + 1], broken[at]} >= {"0", "Z"}:
                continue  # the one pair of letters that a sum modulo 31 cannot tell apart
            with pytest.raises(RequestError, match="slip"):
                seals.normalised(broken)


@pytest.mark.parametrize("code", ["", "ABC", "!!!!!-00000-00000-00000-00000", "0" * 26])
def test_a_malformed_code_is_refused_with_a_sentence(code):
    with pytest.raises(RequestError):
        seals.normalised(code)


def test_a_sealed_file_that_was_changed_is_refused():
    code = seals.new_code()
    sealed, seal = seals.seal("gqa", FILES, code)
    with pytest.raises(RequestError, match="not the one that was published"):
        seals.unseal(sealed[:-1] + bytes([sealed[-1] ^ 1]), code, seal)


def test_another_sealing_under_the_same_code_is_refused():
    """An instructor cannot swap the tests after the first day without its showing."""
    code = seals.new_code()
    _, seal = seals.seal("gqa", FILES, code)
    other, other_seal = seals.seal("gqa", {"solution.py": b"other"}, code)
    with pytest.raises(RequestError, match="not the one that was published"):
        seals.unseal(other, code, seal)
    forged = msgspec.structs.replace(seal, sealed_sha256=other_seal.sealed_sha256)
    with pytest.raises(RequestError, match="not the one that was published"):
        seals.unseal(other, code, forged)


def test_two_sealings_of_the_same_files_publish_different_hashes():
    """The salt: a guessed solution cannot be confirmed from the published hash."""
    code = seals.new_code()
    assert seals.seal("gqa", FILES, code)[1].contents_sha256 != seals.seal("gqa", FILES, code)[1].contents_sha256


def test_codes_do_not_repeat():
    assert len({seals.new_code() for _ in range(200)}) == 200
