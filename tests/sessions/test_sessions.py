"""The table of sessions: titles, lists, branches."""

import json
from dataclasses import replace
from typing import Any

import pytest

from sessions import NotFound, StoreError, shown_title
from tests.sessions.helpers import Filled


def test_titles_come_from_the_first_question_unless_given(filled: Filled) -> None:
    store = filled.store
    session, named = filled.session(), filled.session("My talk")
    assert session.title == "New chat"
    for each in (session, named):
        store.turns.add(each.id, "Who\n is " + "very " * 30 + "long?")
        store.turns.add(each.id, "Second")
    assert store.sessions.get(session.id).title.startswith("Who is very")
    assert len(store.sessions.get(session.id).title) <= 60
    assert (store.sessions.get(named.id).title, store.sessions.get(named.id).turns) == ("My talk", 2)
    assert store.sessions.rename(session.id, "Better").title == "Better"
    with pytest.raises(StoreError):
        store.sessions.rename(session.id, "")


def test_sessions_are_listed_by_last_use(filled: Filled) -> None:
    store, first = filled.store, filled.session("first")
    second = store.sessions.add(first.context_id, "second")
    elsewhere = store.sessions.add(filled.context(filled.document("f" * 64)).id, "elsewhere")
    filled.answered(first, "q", "a")
    assert [row.title for row in store.sessions.all()] == ["first", "elsewhere", "second"]
    assert [row.id for row in store.sessions.all(first.context_id)] == [first.id, second.id]
    assert store.sessions.all(elsewhere.context_id) == [elsewhere]


def test_a_branch_begins_with_the_first_turns_that_are_done(filled: Filled) -> None:
    store, session = filled.store, filled.session("About Emma")
    first = filled.answered(session, "Who is Emma?", "A handsome woman.")
    failed = store.turns.add(session.id, "And?")
    store.turns.finish(failed.id, status="failed", error="out of memory")
    third = store.turns.add(session.id, "Where?")
    store.turns.finish(
        third.id, answer="In Highbury.", sources=[{"page": 1}], measurements={"tokens": 3}, reasoning="Hm."
    )
    store.turns.add(session.id, "When?")
    before = store.sessions.get(session.id), store.turns.all(session.id)
    branch = store.sessions.branch(session.id, 4)
    assert (branch.context_id, branch.title, branch.turns) == (session.context_id, "About Emma (2)", 2)
    for position, (copy, id) in enumerate(zip(store.turns.all(branch.id), (first, third.id), strict=True)):
        assert copy == replace(store.turns.get(id), id=copy.id, session_id=branch.id, position=position)
        assert copy.id not in (first, third.id)
    assert (store.sessions.get(session.id), store.turns.all(session.id)) == before
    assert {hit.session.id for hit in store.search.turns("highbury")} == {session.id, branch.id}
    assert store.turns.all(store.sessions.branch(session.id, 2).id)[0].question == "Who is Emma?"
    assert store.turns.add(branch.id, "When?").position == 2
    store.sessions.delete(session.id)
    assert store.sessions.get(branch.id).turns == 3


def test_a_branch_that_keeps_nothing_takes_its_title_from_its_first_question(filled: Filled) -> None:
    session = filled.session()
    filled.answered(session, "Who is Emma?", "A handsome woman.")
    branch = filled.store.sessions.branch(session.id, 0)
    assert (branch.title, branch.turns) == ("New chat", 0)
    filled.store.turns.add(branch.id, "Who is Mr Knightley?")
    assert filled.store.sessions.get(branch.id).title == "Who is Mr Knightley?"


def test_equal_titles_over_a_context_get_numbers(filled: Filled) -> None:
    """A branch had the same title as the session it came from."""
    store, session = filled.store, filled.session()
    filled.answered(session, "Who is Emma?", "A handsome woman.")
    one = store.sessions.branch(session.id, 1)
    two = store.sessions.branch(one.id, 1)
    anew = store.sessions.branch(session.id, 0)
    store.turns.add(anew.id, "Who is Emma?")
    titles = [store.sessions.get(each.id).title for each in (session, one, two, anew)]
    assert titles == ["Who is Emma?", "Who is Emma? (2)", "Who is Emma? (3)", "Who is Emma? (4)"]
    elsewhere = filled.context()
    assert store.sessions.branch(session.id, 1, elsewhere.id).title == "Who is Emma?"
    store.sessions.rename(one.id, "Accounts (2024)")
    assert store.sessions.branch(one.id, 1).title == "Accounts (2024) (2)"
    long = store.sessions.rename(two.id, "Very " * 39 + "long!")
    branch = store.sessions.branch(two.id, 1)
    assert (len(long.title), len(branch.title), branch.title[-4:]) == (200, 200, " (2)")
    shown = shown_title(branch.title)
    assert (len(shown) <= 60, shown.endswith("… (2)"), shown_title("Emma (2)")) == (True, True, "Emma (2)")


def test_no_branch_keeps_more_turns_than_there_are(filled: Filled) -> None:
    session = filled.session()
    with pytest.raises(StoreError, match=r"has 0 turns: .* not 1"):
        filled.store.sessions.branch(session.id, 1)
    filled.answered(session, "q", "a")
    for turns in (-1, 2):
        with pytest.raises(StoreError, match=f"has 1 turn: .* not {turns}"):
            filled.store.sessions.branch(session.id, turns)
    with pytest.raises(NotFound):
        filled.store.sessions.branch("s-222222", 0)
    assert filled.store.sessions.all() == [filled.store.sessions.get(session.id)]


def test_turns_name_the_documents_that_were_added_later(grown: Any) -> None:
    """An answer about one document appeared under a list of seven, as if it were about all."""
    store, sessions = grown
    titles = [f"Letter {n}" for n in range(7)]
    told = [
        [turn.asked_before(titles[:count]) for turn in store.turns.all(each.id)]
        for each, count in zip(sessions, (1, 2, 7), strict=True)
    ]
    assert told == [
        [""],
        ["Asked before “Letter 1” was added.", ""],
        [
            "Asked before “Letter 1”, “Letter 2” and 4 others were added.",
            "Asked before “Letter 2”, “Letter 3” and 3 others were added.",
            "",
        ],
    ]
    assert "“Letter 1” and “Letter 2” were added." in store.turns.all(sessions[2].id)[0].asked_before(titles[:3])
    text = store.export_session(sessions[1].id)
    assert "That is not in the text.\n\n*(Asked before “Letter \\*1\\*” was added.)*\n\n## 2. And now?" in text
    assert text.count("Asked before") == 1
    exported = json.loads(store.export_session(sessions[2].id, "json"))
    assert [turn["asked_of"] for turn in exported["turns"]] == [1, 2, 7]
    again = store.sessions.branch(sessions[2].id, 3)
    assert [turn.asked_of for turn in store.turns.all(again.id)] == [1, 2, 7]


def test_narrow_queries_find_their_rows_only(filled: Filled) -> None:
    store, session = filled.store, filled.session()
    for number in range(5):
        filled.answered(session, f"Question {number}?", "Yes.")
    assert [turn.question for turn in store.turns.all(session.id, 3)] == ["Question 3?", "Question 4?"]
    assert store.turns.answering(session.id) == []
    turn = store.turns.add(session.id, "And now?")
    assert store.turns.answering(session.id) == [turn.id]
    used = {session.context_id: store.sessions.get(session.id).updated_at}
    assert store.sessions.last_used([session.context_id, filled.context().id]) == used
    other = store.sessions.add(session.context_id)
    filled.answered(other, "Question 4?", "No.")
    assert [row.id for row in store.sessions.all(session.context_id, "Question 4?")] == [other.id, session.id]
    assert [row.id for row in store.sessions.all(asking="Question 3?")] == [session.id]
    assert store.sessions.all(asking="\ud800") == []  # half a sign, as programs cut texts


def test_a_title_is_one_line(filled: Filled) -> None:
    session = filled.session()
    assert filled.store.sessions.rename(session.id, " Two\nlines\tand  blanks ").title == "Two lines and blanks"
    assert filled.store.sessions.add(session.context_id, "A\nB").title == "A B"
    with pytest.raises(StoreError, match="1 to 1,000 hits, not 0"):
        filled.store.search.turns("words", 0)


def test_a_long_title_is_cut(filled: Filled) -> None:
    """Titles of megabytes were stored, and every list showed them."""
    document, session, title = filled.document(title="é" * 10**6), filled.session(), "word " * 10**5
    assert document.title == "é" * 200
    kept = ("word " * 40).rstrip()
    assert filled.store.sessions.add(session.context_id, title).title == kept
    assert filled.store.sessions.rename(session.id, title).title == kept
    assert filled.store.documents.rename(document.id, title).title == kept
