"""The table of turns: streaming and finishing answers."""

import pytest

from sessions import NotFound, Store, StoreError
from tests.sessions.helpers import Filled


def test_an_answer_streams_to_another_store(filled: Filled) -> None:
    session = filled.session()
    turn = filled.store.turns.add(session.id, "Who is Emma?")
    assert (turn.status, turn.answer, turn.position, turn.finished_at) == ("answering", "", 0, None)
    with Store(filled.store.home) as other:
        for seen, piece in (("Emma ", "Emma "), ("Emma Woodhouse", "Woodhouse")):
            filled.store.turns.append_answer(turn.id, piece)
            assert other.turns.get(turn.id).answer == seen
            assert other.turns.get(turn.id).status == "answering"
        done = filled.store.turns.finish(
            turn.id, answer="Emma Woodhouse.", sources=[{"page": 1, "weight": 0.5}], measurements={"tokens": 3}
        )
        assert other.turns.all(session.id) == [done]
    assert (done.status, done.answer, done.sources) == ("done", "Emma Woodhouse.", [{"page": 1, "weight": 0.5}])
    assert done.measurements == {"tokens": 3}
    assert done.finished_at is not None
    assert done.error is None
    with pytest.raises(StoreError, match="is done"):
        filled.store.turns.append_answer(turn.id, "more")
    assert filled.store.turns.get(turn.id) == done


def test_a_cancelled_turn_keeps_its_partial_answer(filled: Filled) -> None:
    turn = filled.store.turns.add(filled.session().id, "q")
    filled.store.turns.append_answer(turn.id, "half an ans\ud800")
    row = filled.store.turns.finish(turn.id, status="cancelled")
    assert (row.status, row.answer) == ("cancelled", "half an ans\ufffd")
    with pytest.raises(ValueError, match="answering"):
        filled.store.turns.finish(turn.id, status="answering")


def test_a_deleted_session_tells_its_answerer_to_stop(filled: Filled) -> None:
    session = filled.session()
    turn = filled.store.turns.add(session.id, "q")
    filled.store.sessions.delete(session.id)
    with pytest.raises(NotFound):
        filled.store.turns.append_answer(turn.id, "x")
    with pytest.raises(NotFound):
        filled.store.turns.finish(turn.id)
    with pytest.raises(NotFound):
        filled.store.turns.add(session.id, "q")
