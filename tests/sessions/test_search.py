"""Full-text search in questions and answers."""

import pytest

from tests.sessions.helpers import Filled


def test_search_finds_words_without_accents_case_or_endings(filled: Filled) -> None:
    store, session = filled.store, filled.session()
    cafe = filled.answered(session, "Where is the Café?", "Beside the river <b>Ouse</b>.")
    other = filled.answered(session, "And the inn?", "The Naïve Lion, near the old bridge of stones.")

    def found(query: str) -> list[str]:
        return [hit.turn.id for hit in store.search.turns(query)]

    assert found("cafe") == found("CAFÉ") == found("caf") == found("cafe river") == [cafe]
    assert found("naive lion") == found('"old bridge"') == found("lion bri") == [other]
    assert found("cafe lion") == found('"bridge old"') == found('"old brid"') == found("caf ") == []
    assert set(found("the")) == {cafe, other}
    assert len(store.search.turns("the", limit=1)) == 1
    hit = store.search.turns("ouse")[0]
    assert hit.session == store.sessions.get(session.id)
    assert hit.turn == store.turns.get(cafe)
    assert hit.snippet == "Beside the river <b>Ouse</b>."
    assert [hit.snippet[start:end] for start, end in hit.highlights] == ["Ouse"]


def test_sessions_with_a_match_are_found(filled: Filled) -> None:
    store, sessions = filled.store, [filled.session(), filled.session(), filled.session()]
    for session, answer in zip(sessions, ("A lamp.", "A lamp, again.", "A fox."), strict=True):
        filled.answered(session, "What was it?", answer)
    ids = [session.id for session in sessions]
    assert store.search.sessions("lamp", ids) == set(ids[:2])
    assert store.search.sessions("lamp", ids[1:]) == {ids[1]}
    assert store.search.sessions("lamp", []) == store.search.sessions("!!!", ids) == set()


@pytest.mark.parametrize(
    "query",
    ['"', '""', "a AND", "NOT", "NEAR(", "café*", "-x", "question:", "(a OR", "^a", "a\x00b", "\ud800", "", "  ", "{}",
     '"a" "', "!!!", "* *", "; DROP TABLE turns", "%", "…", "'", '"!!!" zebra', "x" * 5000],
)  # fmt: skip
def test_no_query_is_an_error(filled: Filled, query: str) -> None:
    filled.answered(filled.session(), "zebra crossing", "no")
    assert isinstance(filled.store.search.turns(query), list)
    assert len(filled.store.search.turns("zebra")) == 1


def test_operators_are_words(filled: Filled) -> None:
    filled.answered(filled.session(), "black", "white")
    assert filled.store.search.turns("black OR nothing") == []
    assert filled.store.search.turns("black NOT white") == []
    assert len(filled.store.search.turns("black - white")) == len(filled.store.search.turns("white, black!")) == 1


def test_the_index_follows_changes_and_survives_a_vacuum(filled: Filled) -> None:
    store, session = filled.store, filled.session()
    first = filled.answered(session, "alpha", "one")
    second = filled.answered(session, "beta", "two")
    store.turns.finish(second, answer="three")
    assert store.search.turns("two") == []
    assert [hit.turn.id for hit in store.search.turns("three")] == [second]
    store.sessions.delete(filled.session().id)
    store.database.connection.vacuum()
    assert [hit.turn.id for hit in store.search.turns("alpha")] == [first]
    streaming = store.turns.add(session.id, "gamma")
    assert [hit.turn.id for hit in store.search.turns("gamma")] == [streaming.id]
