"""A host's load of the learner's file."""

from pathlib import Path

from grader.host import wire
from grader.host.session import Session

SOURCE = b"""
import inspect

def double(x):
    return 2 * x

def own_source():
    return inspect.getsource(double)
"""


def test_a_full_disk_does_not_keep_a_file_from_loading(tmp_path: Path) -> None:
    nowhere = tmp_path / "missing"  # nothing can be written there, as root too
    session = Session(nowhere)
    loaded = session.handle(wire.Load(SOURCE, "submission.py", 0))
    assert isinstance(loaded, wire.Loaded), loaded
    assert {name for name, _ in loaded.names} >= {"double", "own_source"}
    said = session.handle(wire.Call(1, "own_source", None, [], []))
    assert isinstance(said, wire.Returned), said
    assert said.value == "def double(x):\n    return 2 * x\n"
