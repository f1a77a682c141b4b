"""The bubblewrap command that a zygote is started under: no network, read-only files, empty home, own processes."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from grader.model import INTERPRET_VARIABLE

SCRATCH = "/tmp/kit"


@functools.cache
def why_not() -> str:
    """Why bubblewrap cannot be used here, or an empty string when it can."""
    program = shutil.which("bwrap")
    if program is None:
        return "the program bwrap (bubblewrap) is not installed"
    trial = subprocess.run(
        [program, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "true"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    return "" if trial.returncode == 0 else f"bwrap does not work here: {trial.stderr.strip()[:200]}"


def command(arguments: list[str]) -> list[str]:
    """The command line that runs this Python with `arguments` inside the sandbox.

    Bound read-only: the system's libraries, this Python, its packages, and of the kit only the
    modules a host imports; no exercise, no solution, no test, no journal.
    """
    program = shutil.which("bwrap")
    assert program is not None, "why_not() comes first"
    binds: list[str] = []
    for path in ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/etc/ld.so.cache", "/etc/alternatives"):
        if Path(path).is_symlink():
            binds += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).exists():
            binds += ["--ro-bind", path, path]
    for folder in _python_folders():
        binds += ["--ro-bind", folder, folder]
    return [
        program,
        *("--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
        *("--proc", "/proc", "--dev", "/dev", "--size", str(256 << 20), "--tmpfs", "/tmp", "--size", str(64 << 20)),
        *("--tmpfs", "/dev/shm", "--dir", "/tmp/home", "--dir", SCRATCH),
        *binds,
        *_kit_binds(),
        *_gpu_binds(),
        *("--chdir", "/"),  # a folder that cleaning up leaves where it is
        *("--setenv", "HOME", "/tmp/home", "--setenv", "TMPDIR", "/tmp", "--setenv", "PATH", "/usr/bin:/bin"),
        *("--setenv", "LANG", "C.UTF-8", "--setenv", "OMP_NUM_THREADS", "1", "--setenv", "TORCHDYNAMO_DISABLE", "1"),
        *("--setenv", INTERPRET_VARIABLE, os.environ.get(INTERPRET_VARIABLE, "1")),
        *("--", sys.executable, *arguments),
    ]


def _python_folders() -> list[str]:
    """Where this Python and its packages lie, without parents that hold anything else."""
    wanted = {
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        *(sysconfig.get_path(k) for k in ("stdlib", "purelib", "platlib")),
    }
    wanted.add(str(Path(sys.executable).resolve().parent.parent))
    folders = sorted({str(Path(path)) for path in wanted if Path(path).exists()} - {"/usr", "/"})
    return [path for path in folders if not any(path.startswith(other + "/") for other in folders)]


def _gpu_binds() -> list[str]:
    """The device files of NVIDIA's driver, where kernels are to run on them; otherwise none."""
    if os.environ.get(INTERPRET_VARIABLE) != "0":
        return []
    return [word for path in sorted(Path("/dev").glob("nvidia*")) for word in ("--dev-bind", str(path), str(path))]


def _kit_binds() -> list[str]:
    """This package's host-side modules, laid over an empty folder where the package stands outside site-packages."""
    package = Path(__file__).resolve().parents[1]
    names = ["__init__.py", "errors.py", "model.py", "host", "meter"]
    binds = ["--tmpfs", str(package)]
    for content in ("exercises", "solutions", "kernels", "quiz", "tests"):
        for beside in (package.parent / content, package / content, package / "content" / content):
            if beside.exists() and package.parent.name == "site-packages":
                binds += ["--tmpfs", str(beside)]
    for name in names:
        if (package / name).exists():
            binds += ["--ro-bind", str(package / name), str(package / name)]
    return [*binds, "--remount-ro", str(package)]
