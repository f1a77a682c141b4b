"""An answer left anywhere in a release is found, however it is packed; an honest release is clean."""

from __future__ import annotations

import base64
import gzip
import io
import json
import lzma
import py_compile
import subprocess
import tarfile
import zipfile
import zlib

import pytest

from grader.classroom.fragments import sealed_code, sealed_prose, without
from grader.classroom.leaks import find_leaks, leaks_in_text

SOLUTION = '''
"""The reference."""
import torch
from torch import Tensor, nn

class Widget(nn.Module):
    """Shown in the stub: mixes heads of width d."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Shown too: (B, T, d) -> (B, T, d)."""
        # the group axis comes before the head axis, which is what repeat_interleave gives
        k = self.k_proj(x).view(x.shape[0], -1, self.heads, self.width).transpose(1, 2)
        scores = torch.einsum("bhtd,bhsd->bhts", self.q_proj(x), k) / self.width ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[None, None], float("-inf"))
        return self.o_proj(torch.softmax(scores, dim=-1) @ self.v_proj(x))

def given_helper(q, positions, base):
    angle = positions[:, None] * base ** (-torch.arange(0, q.shape[-1], 2) / q.shape[-1])
    return q * angle.cos() + torch.cat((-q[..., 1::2], q[..., ::2]), dim=-1) * angle.sin()
'''
STUB = '''
"""Shown."""
from torch import Tensor, nn

class Widget(nn.Module):
    """Shown in the stub: mixes heads of width d."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Shown too: (B, T, d) -> (B, T, d)."""
        raise NotImplementedError("Widget.forward")

def given_helper(q, positions, base):
    angle = positions[:, None] * base ** (-torch.arange(0, q.shape[-1], 2) / q.shape[-1])
    return q * angle.cos() + torch.cat((-q[..., 1::2], q[..., ::2]), dim=-1) * angle.sin()
'''
SEALED = [sealed_code("solutions/widget.py", SOLUTION, {"given_helper"})]
LINE = 'scores = torch.einsum("bhtd,bhsd->bhts", self.q_proj(x), k) / self.width ** 0.5'
CODE = "ABCDE-FGH12-34567-89JKM-NPQRS"


@pytest.fixture
def release(tmp_path):
    folder = tmp_path / "kit"
    (folder / "exercises" / "widget").mkdir(parents=True)
    (folder / "exercises" / "widget" / "widget.py").write_text(STUB)
    (folder / "exercises" / "widget" / "prompt.md").write_text("# Widget\n\nWrite `Widget.forward`.\n")
    (folder / "README.md").write_text("Install with pip.\n")
    return folder


def leaks(folder):
    return find_leaks(folder, SEALED, [CODE])


def renamed():
    return (
        SOLUTION.replace("scores", "weights")
        .replace("mask", "allowed")
        .replace(" k ", " keys ")
        .replace(", k)", ", keys)")
    )


def tarred(data, mode):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        info = tarfile.TarInfo("solutions/widget.py")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def zipped(data, name="solutions/widget.py"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return buffer.getvalue()


def test_an_honest_release_has_no_leak(release):
    assert leaks(release) == []


@pytest.mark.parametrize(
    "data",
    [
        SOLUTION.encode(),
        f"x\n    {LINE}\n".encode(),
        renamed().encode(),
        SOLUTION.replace("    ", "\t").encode(),
        SOLUTION.replace("(", "( ").replace(",", " ,").encode(),
        SOLUTION.encode("utf-16"),
        SOLUTION.encode("utf-16-be"),
        b"# prose\n\n```python\n" + renamed().encode() + b"```\n",
        b"TEXT = '''" + renamed().encode().replace(b'"""', b"") + b"'''\n",
        json.dumps({"cells": [{"source": SOLUTION.splitlines(keepends=True)}]}).encode(),
        b"&lt;p&gt; " + LINE.replace('"', "&quot;").replace(">", "&gt;").encode(),
        base64.b64encode(SOLUTION.encode()),
        base64.encodebytes(SOLUTION.encode()),
        b'DATA = "' + base64.b64encode(zlib.compress(SOLUTION.encode())) + b'"\n',
        gzip.compress(SOLUTION.encode()),
        lzma.compress(SOLUTION.encode()),
        zlib.compress(b"blob 1234\0" + SOLUTION.encode()),
        zipped(SOLUTION.encode()),
        zipped(zipped(tarred(renamed().encode(), "w:gz"), "b.zip"), "a.zip"),
        tarred(SOLUTION.encode(), "w"),
        tarred(SOLUTION.encode(), "w:xz"),
    ],
    ids=[
        "whole", "one line", "renamed", "tabs", "spaces", "utf-16", "utf-16-be", "fenced", "string", "notebook", "html",
        "base64", "wrapped base64", "base64 of zlib", "gzip", "xz", "git object", "zip", "zip in zip", "tar", "tar.xz",
    ],
)  # fmt: skip
def test_the_solution_is_found_in_every_guise(release, data):
    (release / "notes.txt").write_bytes(data)
    found = leaks(release)
    assert found, "not found"
    assert all(leak.path.startswith("notes.txt") and "solutions/widget.py" in leak.what for leak in found)


def test_a_leaking_stub_is_found(release):
    path = release / "exercises" / "widget" / "widget.py"
    path.write_text(STUB.replace('raise NotImplementedError("Widget.forward")', LINE))
    assert {leak.path for leak in leaks(release)} == {"exercises/widget/widget.py"}


def test_a_comment_of_the_solution_is_found(release):
    (release / "README.md").write_text(
        "Note: the group axis comes before the head axis, which is what repeat_interleave gives."
    )
    assert leaks(release)


def test_a_git_folder_is_a_leak_and_its_objects_are_looked_into(release):
    (release / "solution.py").write_text(SOLUTION)
    git = ["git", "-C", str(release), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["commit", "-qm", "x"],
        ["rm", "-q", "solution.py"],
        ["commit", "-qm", "y"],
    ):
        subprocess.run([*git, *command], check=True)
    found = leaks(release)
    assert by_name_alone(found) >= {".git"}
    assert any("solutions/widget.py" in leak.what and ".git/objects" in leak.path for leak in found)


def by_name_alone(found):
    """The paths that are leaks by name alone."""
    return {leak.path for leak in found if "leftover" in leak.what}


def test_a_bytecode_cache_is_a_leak(release):
    source = release / "exercises" / "widget" / "secret.py"
    source.write_text(SOLUTION)
    py_compile.compile(str(source))
    source.unlink()
    assert any("__pycache__" in leak.path for leak in leaks(release))


@pytest.mark.parametrize(
    "name",
    [
        "a.py~",
        ".a.py.swp",
        "a.orig",
        ".pytest_cache",
        ".mypy_cache",
        ".ipynb_checkpoints",
        "#a.py#",
        ".kit",
        "x.whl",
        "x.pt",
    ],
)
def test_leftovers_and_strange_files_are_leaks_by_name(release, name):
    (release / name).write_bytes(b"")
    assert [leak.path for leak in leaks(release)] == [name]


def test_a_link_is_a_leak(release):
    (release / "more.py").symlink_to("/etc/hostname")
    assert leaks(release)[0].what == "is a link"


@pytest.mark.parametrize("text", [CODE, CODE.replace("-", ""), CODE.lower(), "x " + CODE.replace("-", " ")])
def test_a_code_is_a_leak(release, text):
    (release / "README.md").write_text(f"Code: {text}\n")
    assert "code that opens" in leaks(release)[0].what


def test_hidden_tests_and_mistakes_are_found_and_public_tests_are_not(release):
    hidden = """
@part(1)
def test_secret(submission, reference, rng):
    mine, ref = pair(submission.Widget, reference.Widget, 48, 6, 2)
    x = rng.normal(2, 7, 48)
    close(mine(x[:, 3:]), ref(x)[:, 3:], says="the tail on its own equals the tail of the whole")
"""
    public = hidden.replace("test_secret", "test_public").replace("3:", "4:")
    mistakes = 'says = "Query head h reads KV head h mod H_kv; it should read h // group."\n'
    sealed = [
        without(sealed_code("hidden_tests.py", hidden), [sealed_code("public_tests.py", public)]),
        sealed_prose("mistakes.toml", mistakes),
    ]
    (release / "exercises" / "widget" / "public_tests.py").write_text(public)
    assert find_leaks(release, sealed) == []
    (release / "a.md").write_text(hidden)
    assert {leak.path for leak in find_leaks(release, sealed)} == {"a.md"}
    (release / "a.md").write_text("The query heads of a group read one KV head.")
    assert not find_leaks(release, sealed)
    (release / "a.md").write_text(mistakes)
    assert find_leaks(release, sealed)


def test_feedback_is_checked_the_same_way():
    assert leaks_in_text("ada.html", f"<pre>{LINE}</pre>", SEALED)
    assert not leaks_in_text("ada.html", "<pre>scores = q @ k.mT</pre>", SEALED)


def test_bytes_that_only_look_like_a_container_are_no_failure(release):
    for at, magic in enumerate(
        (b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"\x1f\x8b", b"BZh", b"\x78\x9c", b"\xfd7zXZ\0")
    ):
        (release / f"{at}.txt").write_bytes(magic + b"noise" * 9)
    assert leaks(release) == []
