"""Search in scripts without blanks between words, and for parts of words."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils

from sessions import Store
from sessions.functions import know_functions
from sessions.migrations import migrate
from sessions.search_words import MOST_WORDS
from tests.sessions.helpers import Filled

TEXTS = {
    "Chinese": "河上那座古老的桥梁在1931年重建，每一位乘客都要签名。",
    "Japanese": "渡し守は帳面に乗客の名前を書いた。AI技術はまだない。",
    "Korean": "마을상인들은강을건넜다.",
    "Thai": "คนพายเรือผูกเรือไว้ใต้สะพานเก่าที่ริมน้ำ",
    "Hindi": "पुराना पुल नदी पर है।",
    "German": "Die Wassermühle am Müllermeisterhaus und das Mühlrad.",
}


@pytest.mark.parametrize(
    ("script", "query", "marked"),
    [
        ("Chinese", "桥梁", "桥梁"),
        ("Chinese", "桥", "桥"),
        ("Chinese", "每一位乘客", "每一位乘客"),
        ("Chinese", "1931年", "1931年"),
        ("Japanese", "帳面", "帳面"),
        ("Japanese", "乗客の名前", "乗客の名前"),
        ("Japanese", "技術", "技術"),
        ("Japanese", "ai", "AI"),
        ("Korean", "상인", "상인"),
        ("Thai", "สะพาน", "สะพาน"),
        ("Thai", "ที่", "ที่"),
        ("Hindi", "पुराना", "पुराना"),
        ("German", "mühle", "Wassermühle"),
        ("German", "muhle", "Wassermühle"),
        ("German", "MEISTERHAUS", "Müllermeisterhaus"),
        ("German", "rad ", "Mühlrad"),
    ],
)
def test_a_word_is_found_within_a_run_of_letters(filled: Filled, script: str, query: str, marked: str) -> None:
    store, document, text = filled.store, filled.document(), TEXTS[script]
    store.search.index(document.id, [(1, 100, f"A first line.\n\n{text}")])
    [hit] = store.search.pages(query)
    assert text[hit.start - 115 : hit.end - 115] == marked
    assert marked in [hit.snippet[start:end] for start, end in hit.highlights]
    [hit] = store.search.pages(query, 20, [document.id])
    assert store.search.pages(query, 20, []) == []
    turn = filled.answered(session := filled.session(), "What does it say?", text)
    assert [each.turn.id for each in store.search.turns(query)] == [turn]
    assert store.search.sessions(query, [session.id]) == {session.id}


@pytest.mark.parametrize(
    "query", ["船桥", "梁桥", "乘客商人", "상인마을", "สะพานเรือ", "ทุ่", "mühlrade", '"mühle"', "üh", "पुला"]
)
def test_letters_that_do_not_stand_side_by_side_are_not_found(filled: Filled, query: str) -> None:
    filled.store.search.index(filled.document().id, [(1, 0, " ".join(TEXTS.values()))])
    filled.answered(filled.session(), "What does it say?", " ".join(TEXTS.values()))
    assert filled.store.search.pages(query) == filled.store.search.turns(query) == []


def test_whole_words_come_before_parts_of_words(filled: Filled) -> None:
    store, document = filled.store, filled.document()
    compounds = [f"Die {'x' * number}mühlen und eine Mühlenwiese" for number in range(3, 3 + MOST_WORDS)]
    lines = [*compounds, "Eine Mühle und noch eine Mühle, und vieles andere, das hier lange weitergeht."]
    store.search.index(document.id, [(page, page, text) for page, text in enumerate(lines)])
    assert store.search.pages("mühle ", 3)[0].page == len(lines) - 1
    assert len(store.search.pages("mühle ", 1000)) == len(lines)
    assert store.search.pages("mühle") != store.search.pages('"mühle"') != []


def test_a_search_of_chats_loads_what_it_finds_alone(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search loaded the text of every turn, to look for longer words."""
    session = filled.session()
    for number in range(5):
        filled.answered(session, f"Wo ist Mühle {number}?", "Am Mühlrad.")
    loaded, rows = list[object](), filled.store.database.rows

    def counted(*given: Any) -> list[dict[str, Any]]:
        found = rows(*given)
        loaded.extend(found)
        return found

    monkeypatch.setattr(filled.store.database, "rows", counted)
    assert filled.store.search.turns("schiff ") == []
    assert not loaded
    assert len(filled.store.search.turns("hlra ")) == 5  # in "Mühlrad"
    assert len(loaded) == 1 + 5 + 1  # the longer word, the turns, and their chat


def test_a_deleted_document_leaves_no_long_words(filled: Filled) -> None:
    store, gone = filled.store, filled.document()
    store.search.index(gone.id, [(1, 0, "Zanzibarian 每一位乘客")])
    store.documents.delete(gone.id)
    written = b"".join(path.read_bytes() for path in store.home.glob("stockpot.db*"))
    assert b"anzibarian" not in written
    assert "乘".encode() not in written


def test_a_home_of_an_earlier_version_is_searched_letter_by_letter(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "stockpot.db")) as connection:
        know_functions(connection)
        db = sqlite_utils.Database(connection)
        migrate(db, stop_before="m017_words_to_search")
        values = {"id": "d-222222", "sha256": "a" * 64, "title": "Bridge", "format": "txt", "content_sha256": "b" * 64}
        numbers = {"pages": 1, "characters": 9, "warnings": "[]", "file_bytes": 0, "created_at": 1.0, "searchable": 1}
        db.table("documents").insert({**values, **numbers})
        db.table("pieces").insert({"document_id": "d-222222", "page": 1, "start": 0, "text": TEXTS["Chinese"]})
        context = {"id": "c-222222", "model": "pocket", "method": "exact", "settings": "{}", "fingerprint": "print"}
        state = {"tokens": 9, "status": "ready", "tokens_read": 9, "seconds": 1.0, "usage": "{}", "warnings": "[]"}
        times = {"created_at": 1.0, "updated_at": 1.0}
        db.table("contexts").insert({**context, **state, **times})
        db.table("sessions").insert({"id": "s-222222", "context_id": "c-222222", "title": "Bridge", **times})
        turn = {"id": "t-222222", "session_id": "s-222222", "position": 0, "question": "?", "answer": TEXTS["Chinese"]}
        db.table("turns").insert({**turn, "status": "done", "sources": "[]", "measurements": "{}", "created_at": 1.0})
        connection.commit()
    with Store(tmp_path) as store:
        assert [hit.turn.id for hit in store.search.turns("桥梁")] == ["t-222222"]
        assert store.search.unindexed() == ["d-222222"]
        store.search.index("d-222222", [(1, 0, TEXTS["Chinese"])])
        assert len(store.search.pages("桥梁")) == 1
        assert store.search.is_intact()
