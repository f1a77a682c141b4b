"""``kit class``: for people who teach with the exercises."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from grader.cli.common import console, note, shown
from grader.errors import RequestError
from grader.host import limits

if TYPE_CHECKING:
    from grader.catalogue import Catalogue
    from grader.classroom.batch import BatchProgress, Gradebook
    from grader.classroom.exports import Written
    from grader.classroom.work import Executor
    from grader.model import Exercise

UNGRADED = 3
"""The exit code when something could not be graded: the grader's fault, never a student's zero."""

_DETAILS = ("points", "cause", "full")
_VISIBILITIES = ("visible", "after_due_date", "after_published", "hidden")


@click.group("class")
def classroom() -> None:
    """Release exercises to a class, grade what comes back, and see which mistakes it makes.

    \b
    kit class release OUT --exercises gqa,moe    a student kit; codes in OUT.codes.json
    kit class grade FOLDER                       every submission, every exercise
    kit class code gqa                           the code that opens one exercise
    kit class selftest                           what is truly stopped on this machine
    """


@classroom.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--exercises", "-e", help="Which, with commas between: gqa,moe.")
@click.option("--all", "every", is_flag=True, help="Every exercise there is.")
@click.option("--codes", type=click.Path(path_type=Path), help="Where the codes go; OUT.codes.json if not given.")
@click.option(
    "--public", type=click.IntRange(1, 50), default=2, show_default=True, help="Public tests of each part, at most."
)
def release(out: Path, exercises: str | None, every: bool, codes: Path | None, public: int) -> int:
    """Make a student kit at OUT: public tests in the open, everything else sealed, each exercise under its own code.

    The finished kit is searched for pieces of solutions and hidden tests; where one is found, no kit is made.
    """
    from grader.catalogue import Catalogue
    from grader.classroom.release import make_release

    if bool(exercises) == every:
        raise click.UsageError("say which exercises (--exercises gqa,moe) or --all")
    chosen = _exercises(Catalogue(), exercises)
    made = make_release(out, chosen, codes, public)
    for remark in made.notes:
        note(remark)
    for slug, functions in made.manifest.public_tests.items():
        click.echo(f"{slug}: {len(functions)} public tests; sealed {made.manifest.seals[slug].sealed_sha256[:16]}…")
    click.echo(f"\nThe kit is {shown(made.folder)}; hand out that folder.")
    click.echo(f"The codes are in {shown(made.codes_path)}; keep that file to yourself.")
    return 0


@classroom.command()
@click.argument("name")
@click.option(
    "--codes", type=click.Path(path_type=Path), help="The release's codes file; the one in this folder if not given."
)
def code(name: str, codes: Path | None) -> int:
    """Print the code that opens the exercise NAME of a release, and nothing else of it."""
    from grader.classroom.release import find_codes, read_codes

    path = codes or find_codes(Path.cwd())
    known = read_codes(path).codes
    slug = name if name in known else name.strip().removesuffix(".py").replace("-", "_").lower()
    if slug not in known:
        raise RequestError(f"{shown(path)} has no code for {name!r}", f"it has {', '.join(known)}")
    click.echo(known[slug])
    return 0


@classroom.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Where grades and pages go; FOLDER.grades if not given.")
@click.option("--exercises", "-e", help="Which, with commas between; every one that was handed in if not given.")
@click.option(
    "--isolation",
    type=click.Choice(["bwrap", "process"]),
    default="bwrap",
    show_default=True,
    help="What stands between a submission and this machine.",
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option(
    "--jobs", "-j", type=click.IntRange(min=1), help="Submissions graded at once; one per processor if not given."
)
@click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), help="Draw these inputs; a seed of the batch's own if not given."
)
@click.option("--no-speed", is_flag=True, help="Leave the speed lane out.")
@click.option("--again", is_flag=True, help="Grade also what has a grade already.")
@click.option("--scheduler", help="Grade on the Dask cluster at this address: tcp://host:8786.")
@click.option(
    "--feedback",
    type=click.Choice(_DETAILS),
    default="cause",
    show_default=True,
    help="How much a student's page tells.",
)
@click.option(
    "--visibility",
    type=click.Choice(_VISIBILITIES),
    default="visible",
    show_default=True,
    help="When Gradescope shows results.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout, nothing else.")
def grade(
    folder: Path,
    out: Path | None,
    exercises: str | None,
    isolation: str,
    device: str,
    jobs: int | None,
    seed: int | None,
    no_speed: bool,
    again: bool,
    scheduler: str | None,
    feedback: str,
    visibility: str,
    as_json: bool,
) -> int:
    """Grade every submission in FOLDER: one entry per student, a folder, a .py file, a zip or a tar.

    Stopped and started again, it goes on where it was; only what changed (a file, the tests, the grader) is graded
    again. Writes grades.csv, gradebook.csv, Gradescope's results.json, junit.xml, a page per student and class.html.

    Exit codes: 0 everything was graded, 2 the request was wrong, 3 something could not be graded (try again).
    """
    from grader.catalogue import Catalogue
    from grader.classroom.batch import BatchOptions, grade_class
    from grader.model import Isolation

    catalogue = Catalogue()
    options = BatchOptions(
        isolation=Isolation(isolation),
        device=device,
        lanes=jobs or limits.usable_cores(),
        seed=seed,
        speed=not no_speed,
        again=again,
        only_found=exercises is None,
    )
    folder = Path(os.path.normpath(folder))
    target = out or folder.with_name(f"{folder.resolve().name}.grades")
    if folder.resolve() in (target.resolve(), *target.resolve().parents):
        raise RequestError("grades must not lie among the submissions", "name another --out")
    with _cluster(scheduler) as executor, _progress(quiet=as_json) as report:
        book = grade_class(folder, target, catalogue, _exercises(catalogue, exercises), options, report, executor)
    written = _write(book, target, folder.resolve().name, feedback, visibility)
    return _conclude(book, written, target, as_json)


@classroom.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--feedback", type=click.Choice(_DETAILS), default="cause", show_default=True)
@click.option("--visibility", type=click.Choice(_VISIBILITIES), default="visible", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout, nothing else.")
def report(out: Path, feedback: str, visibility: str, as_json: bool) -> int:
    """Write the files of a graded class anew, from the grades in OUT (the folder that kit class grade wrote)."""
    from grader.catalogue import Catalogue
    from grader.classroom.batch import gradebook
    from grader.classroom.ledger import LEDGER_NAME, Ledger

    if not (out / LEDGER_NAME).exists():
        raise RequestError(f"{shown(out)} holds no grades", "kit class grade FOLDER writes FOLDER.grades")
    catalogue = Catalogue()
    with Ledger(out) as ledger:
        slugs = dict.fromkeys(entry.exercise for entry in ledger.roster())
        book = gradebook(ledger, [catalogue.exercise(slug) for slug in slugs])
    written = _write(book, out, out.resolve().name.removesuffix(".grades"), feedback, visibility)
    return _conclude(book, written, out, as_json)


@classroom.command()
@click.option(
    "--isolation",
    "levels",
    type=click.Choice(["process", "bwrap"]),
    multiple=True,
    help="Only this level; every level that works here if not given.",
)
@click.option("--row", "rows", type=int, multiple=True, help="Only this row of the table.")
@click.option(
    "--attacks", type=click.Path(path_type=Path, exists=True, file_okay=False), help="The folder of the attacks."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout, nothing else.")
def selftest(levels: tuple[str, ...], rows: tuple[int, ...], attacks: Path | None, as_json: bool) -> int:
    """Run the table of attacks on this machine and print what is truly stopped at each level of isolation.

    Exit codes: 0 everything is stopped under bwrap, 1 something is not, 3 the grader itself failed.
    """
    from grader.classroom.selftest import attack_folder, run_selftest, table_text
    from grader.model import Isolation

    folder = attacks or attack_folder()
    wanted = [Isolation(level) for level in levels]

    def step(name: str, level: str) -> None:
        if sys.stderr.isatty() and not as_json:
            click.echo(f"\r\x1b[K{level}: {name}", nl=False, err=True)

    found = run_selftest(folder, wanted, rows, step)
    if sys.stderr.isatty() and not as_json:
        click.echo("\r\x1b[K", nl=False, err=True)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode({"schema": 1, "attacks": found.results})).decode())
    else:
        click.echo(table_text(found))
    return 0 if found.holds else 1


def reveal_with_code(name: str, code: str) -> int:
    """What ``kit reveal NAME --code CODE`` does: open one sealed exercise, keep it in the workspace, show its solution.

    Raises:
        RequestError: the code does not open it, or nothing is sealed here.
    """
    from grader.catalogue import Catalogue
    from grader.cli.common import find, record
    from grader.reveal import keep_opened, open_sealed
    from grader.workspace import Workspace

    workspace = Workspace.find()
    catalogue = Catalogue()
    exercise = find(catalogue, name, workspace).exercise
    opened = open_sealed(catalogue.root, exercise.slug, code)
    kept = keep_opened(opened, workspace.root / ".kit")
    record(workspace, "record_reveal", exercise.slug, "code")
    click.echo(opened.solution)
    note(f"the solution, the hidden tests and the known mistakes of {exercise.slug} are in {shown(kept)}")
    return 0


def _exercises(catalogue: Catalogue, names: str | None) -> list[Exercise]:
    if names is None:
        return catalogue.exercises()
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise RequestError("no exercise is named", "--exercises gqa,moe")
    return list({found.slug: found for found in (catalogue.find(name).exercise for name in wanted)}.values())


@contextmanager
def _cluster(address: str | None) -> Iterator[Executor | None]:
    if address is None:
        yield None
        return
    from grader.classroom.cluster import Cluster

    cluster = Cluster(address)
    try:
        yield cluster
    finally:
        cluster.close()


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[BatchProgress], None]]:
    """One line on a terminal's stderr: counts, what is being graded, how long it will take yet."""
    if quiet or not sys.stderr.isatty():
        yield lambda state: None
        return
    from rich.status import Status

    status = Status("reading the submissions", console=console(stderr=True))
    with status:
        yield lambda state: status.update(progress_line(state))


def progress_line(state: BatchProgress) -> str:
    """The progress line's text: ``correctness 12/100, 7 right, 5 wrong, 3 from before, 2 min left · ada · gqa``."""
    counts = [f"{state.phase} {state.done}/{state.total}", f"{state.passed} right", f"{state.failed} wrong"]
    if state.faults:
        counts.append(f"{state.faults} could not be graded")
    if state.reused:
        counts.append(f"{state.reused} from before")
    if state.eta_seconds is not None and state.done < state.total:
        counts.append(f"{duration(state.eta_seconds)} left")
    return ", ".join(counts) + "".join(f"  {name}" for name in state.running[:1])


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 5 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _write(book: Gradebook, out: Path, title: str, feedback: str, visibility: str) -> Written:
    from grader.classroom.exports import Visibility, write_all
    from grader.classroom.feedback import Detail

    return write_all(book, out, title, Detail(feedback), Visibility(visibility))


def _conclude(book: Gradebook, written: Written, out: Path, as_json: bool) -> int:
    """Say what came out, and give the exit code."""
    from grader.classroom.batch import Status

    counts = {status: sum(row.status is status for row in book.rows) for status in Status}
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(class_document(book))).decode())
    else:
        _print_summary(book, out)
        for name in book.ignored[:10]:
            note(f"{name} is nobody's submission")
        for student in written.withheld:
            note(f"no results.json for {student}: something could not be graded")
    return UNGRADED if counts[Status.NOT_GRADED] else 0


def class_document(book: Gradebook) -> dict[str, object]:
    """The class as a JSON-ready dictionary."""
    return {
        "schema": 1,
        "exercises": [exercise.slug for exercise in book.exercises],
        "ignored": list(book.ignored),
        "grades": [
            {
                "student": row.entry.student,
                "exercise": row.entry.exercise,
                "status": str(row.status),
                "points": row.points,
                "max_points": row.entry.max_points,
                "passed": bool(row.attempt and row.attempt.passed),
                "isolation": str(row.attempt.isolation) if row.attempt else None,
                "seed": row.entry.seed,
                "file": row.entry.file,
                "source_sha256": row.entry.source_sha256,
                "tests_sha256": row.entry.pack,
                "kit": row.entry.kit,
                "mistakes": [item.mistake for item in row.attempt.diagnosis] if row.attempt else [],
                "note": row.entry.refused or row.fault,
            }
            for row in book.rows
        ],
    }


def _print_summary(book: Gradebook, out: Path) -> None:
    from grader.classroom.batch import Status
    from grader.classroom.stats import class_statistics
    from grader.cli.escape import visible

    for item in class_statistics(book):
        counts = ", ".join(f"{item.status[status]} {status}" for status in Status if item.status.get(status))
        mean = "" if item.mean is None else f"; mean {item.mean:.1f} of {item.exercise.max_points}"
        click.echo(f"{item.exercise.slug}: {counts}{mean}")
        for mistake in item.mistakes[:3]:
            click.echo(f"    {mistake.count} x {mistake.id}: {mistake.title}")
    for row in book.rows:
        if row.status in (Status.REFUSED, Status.NOT_GRADED):
            click.echo(
                visible(f"{row.entry.student}, {row.entry.exercise}: {row.status}: {row.entry.refused or row.fault}")
            )
    click.echo(f"\nThe class: {shown(out / 'class.html')}. Grades: {shown(out / 'grades.csv')}.")
