"""The catalogue: reading, refusing, finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.catalogue import Catalogue, read_hints, read_mistakes
from grader.errors import ContentError, RequestError
from grader.listing import headlines
from grader.paths import exercise_folders


def edit(course: Path, name: str, find: str, replace: str, slug: str = "scale_it") -> None:
    path = course / "exercises" / slug / name
    text = path.read_text()
    assert find in text
    path.write_text(text.replace(find, replace, 1))


def test_an_exercise_is_read_whole(course: Path) -> None:
    exercise = Catalogue(course).exercise("scale_it")
    assert (exercise.title, exercise.minutes, exercise.max_points) == ("Scaling", 5, 10)
    assert exercise.symbols == ("scale", "Scaler")
    assert exercise.given == ("unit",)
    assert exercise.symbols_minutes == {"Scaler": 2}
    assert (exercise.reveal_after_attempts, exercise.reveal_after_minutes) == (3, 20)
    assert exercise.solution_path == course / "solutions" / "scale_it.py"


def test_costs_speeds_and_reveal_are_read(course: Path) -> None:
    with (course / "exercises" / "shift" / "exercise.toml").open("a") as stream:
        stream.write(
            '\n[[cost]]\nname = "FLOPs"\npart = 1\nlimit = 1.2\nunit = "x"\nrequired = false\ncause = "twice"\n'
            '\n[[speed]]\nname = "scan"\npart = 2\ntarget = 1.5\n\n[reveal]\nattempts = 2\nminutes = 7\n'
        )
    exercise = Catalogue(course).exercise("shift")
    (cost,), (speed,) = exercise.costs, exercise.speeds
    assert (cost.name, cost.limit, cost.required, cost.cause) == ("FLOPs", 1.2, False, "twice")
    assert (speed.name, speed.part, speed.target) == ("scan", 2, 1.5)
    assert (exercise.reveal_after_attempts, exercise.reveal_after_minutes) == (2, 7)


@pytest.mark.parametrize(
    ("find", "replace", "says"),
    [
        ('title = "Scaling"\n', "", "title is missing"),
        ("stars = 1", 'stars = "one"', "stars must be a whole number"),
        ("stars = 1", "stars = true", "stars must be a whole number"),
        ('slug = "scale_it"', 'slug = "other"', "folder"),
        ('track = "attention"', 'track = "music"', "track is 'music'"),
        ("number = 2", "number = 3", "numbered 1, 2"),
        ('symbols = ["scale"]', 'symbols = "scale"', "list of names"),
        ('title = "Scaling"', 'title = "Scaling', "not valid TOML"),
        ('title = "Scaling"', 'title = ""', "title is empty"),
    ],
)
def test_a_broken_exercise_file_is_refused_by_key(course: Path, find: str, replace: str, says: str) -> None:
    edit(course, "exercise.toml", find, replace)
    with pytest.raises(ContentError, match=says):
        Catalogue(course).exercise("scale_it")


def test_the_list_goes_by_track_and_reads_only_the_head(course: Path) -> None:
    edit(course, "exercise.toml", "[[part]]", "[[part]]\nbroken = = 1")
    assert [item.slug for item in headlines(exercise_folders(course))] == ["scale_it", "shift"]


@pytest.mark.parametrize("name", ["scale_it", "scale-it", "SCALE_IT", "scale_it.py"])
def test_a_slug_is_found_in_the_ways_people_type_it(course: Path, name: str) -> None:
    found = Catalogue(course).find(name)
    assert (found.exercise.slug, found.symbol) == ("scale_it", None)


def test_a_symbol_finds_its_exercise_and_part(course: Path) -> None:
    found = Catalogue(course).find("scaler")
    assert (found.exercise.slug, found.symbol, found.part, found.others) == ("scale_it", "Scaler", 2, ())


def test_a_symbol_of_several_exercises_means_the_one_that_asks_first(course: Path) -> None:
    found = Catalogue(course).find("scale")
    assert (found.exercise.slug, found.part, found.others) == ("scale_it", 1, ("shift",))


def test_an_unknown_name_gets_the_nearest_ones(course: Path) -> None:
    with pytest.raises(RequestError) as caught:
        Catalogue(course).find("sclae_it")
    assert caught.value.exit_code == 2
    assert "scale_it" in caught.value.hint


def test_a_name_near_nothing_points_to_the_list(course: Path) -> None:
    with pytest.raises(RequestError) as caught:
        Catalogue(course).find("qqqqqqqq")
    assert caught.value.hint == "kit list shows them all"


def test_a_broken_exercise_does_not_hide_the_others(course: Path) -> None:
    edit(course, "exercise.toml", "[[part]]", "[[part]]\nbroken = = 1")
    assert Catalogue(course).find("scale").exercise.slug == "shift"


def test_mistakes_are_read_with_their_edits(course: Path) -> None:
    exercise = Catalogue(course).exercise("scale_it")
    (mistake,) = read_mistakes(exercise)
    assert (mistake.id, mistake.part, mistake.kind) == ("scale-it-wrong", 1, "wrong")
    assert (mistake.edits[0].find, mistake.edits[0].count) == ("x * factor + 0", 1)


def test_a_mistake_without_a_key_and_a_doubled_id_are_refused(course: Path) -> None:
    path = course / "exercises" / "scale_it" / "mistakes.toml"
    whole = path.read_text()
    path.write_text(whole.replace('hint = "Try 2."\n', ""))
    with pytest.raises(ContentError, match=r"'scale-it-wrong'.*hint is missing"):
        read_mistakes(Catalogue(course).exercise("scale_it"))
    path.write_text(whole + whole)
    with pytest.raises(ContentError, match="twice"):
        read_mistakes(Catalogue(course).exercise("scale_it"))


def test_hints_are_read_per_part_and_headings_in_code_are_no_headings(course: Path) -> None:
    hints = read_hints(Catalogue(course).exercise("scale_it"))
    assert hints[1][:2] == ("Nudge 1.", "Idea 1.")
    assert hints[2][2] == "```\n# line 2\n```"


@pytest.mark.parametrize(
    ("find", "replace", "says"),
    [
        ("### Idea", "### Thought", "must have"),
        ("Nudge 1.", "", "empty hint"),
        ("## Part 2", "## Part 3", "its parts are"),
    ],
)
def test_broken_hints_are_refused(course: Path, find: str, replace: str, says: str) -> None:
    edit(course, "hints.md", find, replace)
    with pytest.raises(ContentError, match=says):
        read_hints(Catalogue(course).exercise("scale_it"))


def test_the_real_load_balancing_loss_is_the_exercise_about_it() -> None:
    found = Catalogue().find("load_balancing_loss")
    assert found.exercise.slug == "balance_loss" and "moe" in found.others
