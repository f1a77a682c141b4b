"""Ratings, due dates, cards, quizzes, drills and hunts."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path

import pytest

from grader.catalogue import Catalogue
from grader.errors import RequestError
from grader.journal import drills as journal_drills
from grader.journal import sessions
from grader.journal.store import Journal
from grader.model import Attempt, Isolation, PartResult
from grader.review import cards, drills, hunts, interviews, quiz, summary
from grader.review.drills import Mode
from grader.review.schedule import DAY_NS, Rating, at_the_date, card_name, due_at, next_review, rate, recall

ROOT = Path(__file__).resolve().parents[2]
NOW = 1_800_000_000 * 10**9
BANK = quiz.Bank(ROOT)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.open(tmp_path / "journal.db")


@pytest.mark.parametrize(
    ("passed", "seconds", "hints", "first", "revealed", "rating"),
    [
        (False, 10, 0, True, False, Rating.AGAIN),
        (True, 10, 0, True, True, Rating.AGAIN),
        (True, 10, 1, True, False, Rating.HARD),
        (True, 601, 0, True, False, Rating.HARD),
        (True, 600, 0, True, False, Rating.GOOD),
        (True, 359, 0, False, False, Rating.GOOD),
        (True, 359, 0, True, False, Rating.EASY),
        (True, 360, 0, True, False, Rating.GOOD),
    ],
)
def test_a_drill_is_rated_by_outcome_time_hints_and_tries(
    passed: bool, seconds: float, hints: int, first: bool, revealed: bool, rating: Rating
) -> None:
    assert rate(passed, seconds, 600, hints, first, revealed) is rating


def test_intervals_grow_while_it_goes_well_and_shrink_when_it_does_not() -> None:
    memory, now, intervals = None, NOW, []
    for rating in (Rating.GOOD, Rating.GOOD, Rating.GOOD, Rating.AGAIN):
        scheduled = next_review(memory, rating, now)
        intervals.append(scheduled.due_ns - now)
        memory, now = scheduled.memory, scheduled.due_ns
    assert DAY_NS <= intervals[0] < intervals[1] < intervals[2] > intervals[3] >= DAY_NS


def test_every_rating_waits_a_day_at_least() -> None:
    for rating in Rating:
        assert next_review(None, rating, NOW).due_ns - NOW >= DAY_NS


def test_an_interview_draws_reviews_in_but_not_those_that_are_fresh() -> None:
    memory, now = None, NOW
    for _ in range(4):
        scheduled = next_review(memory, Rating.EASY, now)
        memory, now = scheduled.memory, scheduled.due_ns
    free = next_review(memory, Rating.GOOD, now).due_ns
    day = now + 20 * DAY_NS
    assert free > day
    drawn_in = next_review(memory, Rating.GOOD, now, day).due_ns
    assert now + DAY_NS <= drawn_in < day
    assert next_review(memory, Rating.GOOD, day - 2 * DAY_NS, day).due_ns > day, "fresh two days before"
    assert next_review(memory, Rating.GOOD, now, now - DAY_NS).due_ns == free, "a past interview caps nothing"
    assert next_review(memory, Rating.GOOD, now, free + DAY_NS).due_ns == free


def test_a_clock_that_goes_back_or_skips_a_year_does_no_harm() -> None:
    memory = next_review(next_review(None, Rating.GOOD, NOW).memory, Rating.GOOD, NOW + 3 * DAY_NS).memory
    back = NOW - 300 * DAY_NS
    again = next_review(memory, Rating.GOOD, back)
    assert back + DAY_NS <= again.due_ns < back + 200 * DAY_NS
    gap = next_review(memory, Rating.GOOD, NOW + 400 * DAY_NS)
    assert gap.due_ns > NOW + 401 * DAY_NS
    assert 0 < recall(memory, NOW + 365 * DAY_NS) < recall(memory, NOW + 10 * DAY_NS) <= 1
    assert recall(memory, back) <= 1


def test_the_forecast_counts_the_reviews_that_come_up() -> None:
    scheduled = next_review(None, Rating.GOOD, NOW)
    alone, kept, count = at_the_date(scheduled.memory, scheduled.due_ns, NOW + 60 * DAY_NS, NOW)
    assert 0 < alone < 0.9 <= kept <= 1 and 2 <= count <= 8
    assert at_the_date(scheduled.memory, scheduled.due_ns, NOW + DAY_NS, NOW)[2] == 0


def test_a_symbol_is_another_card_than_its_part() -> None:
    assert card_name("gqa", 1, "blank") != card_name("gqa", 1, "blank", "mean_pool_kv_heads")


def review(journal: Journal, card: str, now_ns: int, rating: Rating = Rating.GOOD) -> None:
    scheduled = next_review(None, rating, now_ns)
    journal_drills.record_review(journal, card, int(rating), scheduled.due_ns, scheduled.memory, now_ns)


def test_cards_come_longest_due_first_and_the_latest_review_counts(journal: Journal) -> None:
    review(journal, "moe:1:blank", NOW)
    review(journal, "gqa:1:blank", NOW - 5 * DAY_NS, Rating.EASY)
    review(journal, "gqa:1:blank", NOW - DAY_NS, Rating.AGAIN)
    first, second = cards.cards(journal, NOW)
    assert (first.name, first.reviews, first.rating) == ("gqa:1:blank", 2, Rating.AGAIN)
    assert second.due_ns >= first.due_ns


def test_a_review_from_a_clock_that_was_ahead_does_not_bury_the_card(journal: Journal) -> None:
    review(journal, "gqa:1:blank", NOW + 900 * DAY_NS)
    (card,) = cards.cards(journal, NOW)
    assert card.due_ns <= NOW + 20 * DAY_NS and card.reviewed_ns == NOW


def test_an_interview_date_set_later_draws_in_what_is_scheduled(journal: Journal) -> None:
    review(journal, "gqa:1:blank", NOW, Rating.EASY)
    (free,) = cards.cards(journal, NOW)
    today = date.fromtimestamp(NOW / 1e9)
    assert cards.set_interview(journal, "2027-01-20", today) == date(2027, 1, 20)
    (drawn_in,) = cards.cards(journal, NOW)
    interview_ns = cards.interview(journal)
    assert interview_ns is not None and drawn_in.due_ns < min(free.due_ns, interview_ns)
    assert cards.set_interview(journal, "none", today) is None
    assert cards.cards(journal, NOW) == [free] and cards.interview(journal) is None


@pytest.mark.parametrize("text", ["soon", "2027-13-01", "2020-01-01", "2027-01-15", ""])
def test_an_interview_date_that_is_none_or_not_ahead_is_refused(journal: Journal, text: str) -> None:
    with pytest.raises(RequestError):
        cards.set_interview(journal, text, date(2027, 1, 15))


def test_an_interviews_day_begins_at_the_learners_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    starts = []
    for zone in ("UTC", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        starts.append(cards.day_start_ns(date(2027, 2, 1)))
    monkeypatch.undo()
    time.tzset()
    assert starts[0] - starts[1] == 9 * 3600 * 10**9


def test_readiness_is_by_exercise_and_quiz_topic(journal: Journal) -> None:
    for name in ("gqa:1:blank", "gqa:2:blank", "quiz:serving:decode-speed"):
        review(journal, name, NOW)
    found = cards.readiness(cards.cards(journal, NOW), NOW + 30 * DAY_NS, NOW)
    assert set(found) == {"gqa", "quiz:serving"} and found["gqa"].cards == 2
    rows = summary.readiness_by_topic(cards.cards(journal, NOW), Catalogue(ROOT).headlines(), NOW + DAY_NS * 30, NOW)
    attention = next(row for row in rows if row[0] == "attention")
    assert attention[1].startswith("1 of ") and attention[2] is not None
    assert next(row for row in rows if row[0] == "kernels")[2] is None


def test_questions_due_come_before_new_ones_and_those_before_what_can_wait() -> None:
    first, second, third, *_ = BANK.numeric
    due = {first.card: NOW + DAY_NS, second.card: NOW - DAY_NS}
    chosen = quiz.choose([first, second, third], due, NOW, 3, random.Random(1))
    assert chosen == [second, third, first]


def test_a_seed_draws_the_same_numbers_and_another_one_others() -> None:
    question = next(found for found in BANK.numeric if found.id == "kv-batch-gib")
    assert BANK.ask(question, 4) == BANK.ask(question, 4)
    assert len({BANK.ask(question, seed).text for seed in range(20)}) > 10
    asked = BANK.ask(question, 4)
    assert asked.accepts(f"{asked.answer}") and asked.accepts(f"{asked.answer * 1024} MiB")
    assert not asked.accepts(f"{asked.answer * 1.04}")


def test_every_question_takes_its_own_answer_and_no_other() -> None:
    for question in BANK.numeric:
        for seed in range(5):
            asked = BANK.ask(question, seed)
            assert asked.accepts(repr(asked.answer)), question.id
            assert asked.accepts(f"{asked.answer!r} {asked.unit}"), (question.id, asked.unit)
            for wrong in (asked.answer * 2 + 1, asked.answer * 1000, -asked.answer or 5.0):
                assert wrong == asked.answer or not asked.accepts(repr(wrong)), (question.id, wrong)


def test_a_topic_goes_by_its_beginning_a_question_by_its_id() -> None:
    assert {question.topic for question in BANK.about("att")} == {"attention"}
    assert [question.id for question in BANK.about("balance-loss")] == ["balance-loss"]
    with pytest.raises(RequestError, match="no topic"):
        BANK.about("music")


def test_a_content_folder_without_a_bank_is_said(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no question bank"):
        quiz.Bank(tmp_path)


def test_what_a_wrong_number_suggests() -> None:
    assert "2 times" in quiz.how_far([20.0], 10.0)
    assert "powers of 1024" in quiz.how_far([10.0 * 1.024**3], 10.0)
    assert "0.3 times" in quiz.how_far([3.0], 10.0)
    assert quiz.how_far([3.0], 0.0) == ""


@pytest.mark.parametrize(
    ("points", "seconds", "rating"),
    [(4, 10, Rating.AGAIN), (7, 10, Rating.HARD), (9, 10, Rating.GOOD), (9, 400, Rating.HARD), (10, 10, Rating.EASY)],
)
def test_a_spoken_answer_is_rated_by_its_rubric_and_its_time(points: int, seconds: float, rating: Rating) -> None:
    assert quiz.rate_spoken(points, 10, seconds, 4) is rating


def exercise_of(course: Path, slug: str) -> drills.Exercise:
    return Catalogue(course).exercise(slug)


def test_a_drills_page_is_blank_copied_or_cloze(course: Path) -> None:
    exercise = exercise_of(course, "scale_it")
    solution = exercise.solution_path.read_text()
    blank = drills.plan(exercise, solution, Mode.BLANK)
    assert "raise NotImplementedError" in blank.page and "x * factor" not in blank.page and blank.beside == ""
    copied = drills.plan(exercise, solution, Mode.COPY)
    assert copied.page == blank.page and "x * factor" in copied.beside and "the trick" not in copied.beside
    cloze = drills.plan(exercise, solution, Mode.CLOZE, seed=3)
    assert cloze.page != solution and "def scale(" in cloze.page
    symbol = drills.plan(exercise, solution, Mode.BLANK, "Scaler")
    assert (symbol.part, symbol.target_seconds) == (2, 120.0) and "return x * factor" in symbol.page
    assert blank.target_seconds == 300.0


@pytest.mark.parametrize(("symbol", "part"), [("nothing", 1), ("", 3)])
def test_a_drill_of_what_is_not_there_is_refused(course: Path, symbol: str, part: int) -> None:
    exercise = exercise_of(course, "scale_it")
    with pytest.raises(RequestError):
        drills.plan(exercise, exercise.solution_path.read_text(), Mode.BLANK, symbol, part)


def test_tokens_that_differ_do_not_count_layout_comments_and_docstrings() -> None:
    solution = 'def f(x):\n    """Doc."""\n    return x + 1  # why\n'
    assert drills.differing_tokens("def f(x):\n\n      # other\n      return x  +  1\n", solution, ("f",)) == 0
    assert drills.differing_tokens("def f(x):\n    return x + 2\n", solution, ("f",)) == 1
    assert drills.differing_tokens("def f(x:\n", solution, ("f",)) > 5


def test_a_finished_drill_is_compared_with_the_past_and_ends_once(journal: Journal) -> None:
    times = []
    for seconds in (500.0, 300.0, 400.0):
        row = journal_drills.begin(journal, "gqa", 1, "", "blank", "f.py", 1, 600.0, NOW)
        journal_drills.beat(journal, row.id, seconds, NOW, 2)
        result = drills.conclude(journal, row, True, NOW)
        assert result is not None
        times.append((result.best_seconds, result.previous_seconds))
        assert drills.conclude(journal, row, True, NOW) is None
    assert times == [(None, None), (500.0, 500.0), (300.0, 300.0)]
    assert len(journal_drills.reviews(journal)) == 3


def test_hints_and_reveals_during_a_drill_lower_its_rating(journal: Journal) -> None:
    ratings = []
    for happens in ("hint", "reveal", "override"):
        row = journal_drills.begin(journal, happens, 1, "", "blank", "f.py", 1, 600.0, NOW)
        if happens == "hint":
            journal.record_hint(happens, 1, 1, at_ns=NOW + 1)
        if happens == "reveal":
            journal.record_reveal(happens, "tried", at_ns=NOW + 1)
        result = drills.conclude(journal, row, True, NOW, override=Rating.HARD if happens == "override" else None)
        assert result is not None
        ratings.append(result.rating)
    assert ratings == [Rating.HARD, Rating.AGAIN, Rating.HARD]


def test_a_paused_drills_clock_stands(journal: Journal) -> None:
    row = journal_drills.begin(journal, "gqa", 1, "", "blank", "f.py", 1, 600.0, NOW)
    journal_drills.beat(journal, row.id, 5, NOW)
    journal_drills.pause(journal, row.id)
    journal_drills.beat(journal, row.id, 500, NOW)
    journal_drills.beat(journal, row.id, -500, NOW)
    assert journal_drills.drill(journal, row.id).elapsed_seconds == 5
    journal_drills.resume(journal, row.id, NOW)
    journal_drills.beat(journal, row.id, 2, NOW)
    assert journal_drills.drill(journal, row.id).elapsed_seconds == 7


def test_a_hunts_seed_tells_its_mistake_and_the_page_does_not(course: Path) -> None:
    exercise = exercise_of(course, "shift")
    hunt = hunts.draw(exercise, 7)
    assert hunt.mistakes == hunts.mistakes_of(exercise, hunt.seed)
    assert "2 * x + 1" in hunt.page and "mistake" not in hunt.page.lower() and hunt.target_seconds == 300.0
    with pytest.raises(RequestError, match="no mistakes"):
        hunts.draw(exercise, 7, hard=True)


def test_hunts_avoid_what_past_hunts_held_and_hard_ones_hold_two() -> None:
    exercise = Catalogue(ROOT).exercise("gqa")
    seen: list[int] = []
    held = set()
    for seed in range(5):
        hunt = hunts.draw(exercise, seed, past_seeds=seen)
        seen.append(hunt.seed)
        held.add(hunt.mistakes[0].id)
    assert len(held) == 5
    hard = hunts.draw(exercise, 3, hard=True)
    assert len(hard.mistakes) == 2 and hard.target_seconds == 2 * hunt.target_seconds


def test_an_interview_fits_its_time_and_a_seed_draws_it_again() -> None:
    exercises = Catalogue(ROOT).exercises()
    for seed in range(30):
        items = interviews.draw(exercises, BANK, 60, seed, {}, {}, NOW)
        assert items == interviews.draw(exercises, BANK, 60, seed, {}, {}, NOW)
        assert [item.kind for item in items[:2]] == ["debugging", "coding"] and items[-1].kind == "spoken"
        assert items[0].subject != items[1].subject
        assert sum(item.seconds for item in items) <= 3600
    with pytest.raises(RequestError, match="at least"):
        interviews.draw(exercises, BANK, 5, 1, {}, {}, NOW)


def test_an_interview_prefers_what_was_not_drilled_for_long() -> None:
    exercises = Catalogue(ROOT).exercises()
    fresh = {exercise.slug: NOW for exercise in exercises if exercise.slug != "gqa"}
    drawn = {interviews.draw(exercises, BANK, 60, seed, fresh, {}, NOW)[1].subject for seed in range(40)}
    assert "gqa" in drawn and len(drawn) < len(exercises)


def test_an_interviews_score_weighs_its_tasks() -> None:
    items = (
        sessions.Item("debugging", "gqa", 0, 1, 600, state="passed", points=1.0),
        sessions.Item("coding", "moe", 1, 1, 600, state="late", points=0.5),
        sessions.Item("number", "quiz:a:b", 0, 1, 60, state="failed"),
    )
    row = sessions.InterviewRow(1, NOW, 1, 3600, 3600, "finished", NOW, items)
    assert interviews.score(row) == pytest.approx((3 + 2) / 8)
    assert interviews.band(0.85) == "strong" and interviews.band(0.1) == "not yet"


def graded(passed: bool, slug: str = "shift") -> Attempt:
    parts = (PartResult(1, "Shift", passed, 5 * passed),)
    return Attempt(slug, "f", 1, "cpu", Isolation.PROCESS, 1.0, passed, 5 * passed, 5, parts, ())


def test_a_mistake_is_mended_by_a_later_pass_of_its_part(journal: Journal, course: Path) -> None:
    from msgspec.structs import replace

    from grader.model import Diagnosis

    wrong = replace(graded(False), diagnosis=(Diagnosis("shift-wrong", "Wrong number", "", ()),))
    journal.record_attempt(graded(True), "", at_ns=NOW)
    journal.record_attempt(wrong, "", at_ns=NOW + 1)
    journal.record_attempt(wrong, "", at_ns=NOW + 2)
    (made,) = summary.mistakes_made(journal, Catalogue(course))
    assert (made.title, made.count, made.first_ns, made.last_ns, made.mended_ns) == (
        "Wrong number", 2, NOW + 1, NOW + 2, None,
    )  # fmt: skip
    journal.record_attempt(graded(True), "", at_ns=NOW + 3)
    (made,) = summary.mistakes_made(journal, Catalogue(course))
    assert made.mended_ns == NOW + 3


def test_due_dates_follow_the_memory_not_an_older_cap() -> None:
    scheduled = next_review(None, Rating.EASY, NOW, NOW + 5 * DAY_NS)
    assert scheduled.due_ns < NOW + 5 * DAY_NS < due_at(scheduled.memory, NOW)


def test_where_the_solution_is_sealed_practice_says_so(course: Path) -> None:
    exercise = exercise_of(course, "shift")
    exercise.solution_path.unlink()
    for practise in (drills.solution_of, lambda sealed: hunts.draw(sealed, 1)):
        with pytest.raises(RequestError, match="sealed"):
            practise(exercise)
