"""Export of a session as Markdown and JSON."""

import json
import re
import time
from typing import Any

import pytest
from markdown_it import MarkdownIt

from sessions import StoreError
from tests.sessions.helpers import Filled


@pytest.fixture
def talked(filled: Filled) -> Any:
    """A session with an answer, a failed turn and HTML in all of its texts."""
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


def test_markdown_export(talked: Any) -> None:
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


def test_json_export_is_complete(talked: Any) -> None:
    store, session, document = talked
    data = json.loads(store.export_session(session.id, "json"))
    assert data["session"]["title"] == "About <Emma>"
    assert data["context"]["method"] == "exact"
    assert [each["id"] for each in data["documents"]] == [document.id]
    assert [each["answer"] for each in data["turns"]] == ["A **person**.\n\n<script>x</script>", "She"]
    assert data["turns"][0]["sources"][0]["quote"] == "Emma Woodhouse,\nhandsome <i>"
    with pytest.raises(StoreError, match="pdf"):
        store.export_session(session.id, "pdf")


def test_pages_slides_and_sections_are_counted(filled: Filled) -> None:
    documents = [filled.document(sha256=str(n) * 64, format=format) for n, format in enumerate(("pdf", "pptx", "xlsx"))]
    session = filled.store.sessions.add(filled.context(*documents).id, "All of them")
    text = filled.store.export_session(session.id)
    assert [line for line in text.split("\n") if line.startswith("- ")] == [
        *("- *Emma* (pdf, 3 pages)", "- *Emma* (pptx, 3 slides)", "- *Emma* (xlsx, 3 sections)"),
    ]


def test_a_long_question_is_shortened_in_its_heading(filled: Filled) -> None:
    """A pasted page became a heading of 20,000 characters."""
    session = filled.session()
    page = "What is meant by *this*?\n\n" + "The sea was calm and the fox slept. " * 9
    filled.store.turns.finish(filled.store.turns.add(session.id, page).id, answer="Nothing.", sources=[])
    lines = filled.store.export_session(session.id).split("\n")
    heading = next(line for line in lines if line.startswith("## 1. What is meant by \\*this\\*? The sea"))
    assert heading.endswith(" …")
    assert len(heading) < 140
    quoted = [line.removeprefix("> ").strip() for line in lines if line.startswith(">")]
    assert quoted == [r"What is meant by \*this\*?", "", ("The sea was calm and the fox slept. " * 9).strip()]


def test_named_pages_stay_with_the_question(filled: Filled) -> None:
    session = filled.session()
    turn = filled.store.turns.add(session.id, "Who came?", "2:3, 1:4/1-2")
    filled.store.turns.finish(turn.id, answer="Nobody.", status="cancelled")
    assert filled.store.turns.get(turn.id).pages == "2:3, 1:4/1-2"
    assert "Who came?\n\n*(Pages named: 2:3, 1:4/1-2)*\n\nNobody." in filled.store.export_session(session.id)


def test_passages_of_an_answer_that_found_nothing_are_called_the_closest(filled: Filled) -> None:
    session = filled.session().id
    turn = filled.store.turns.add(session, "Who is Ahab?")
    source = {"document": "d-a", "page": 3, "quote": "Line 3."}
    for found in (True, False):
        filled.store.turns.finish(turn.id, answer="Nobody.", sources=[source], measurements={"found": found})
        text = filled.store.export_session(session)
        assert ("*(Closest passages:)*\n\n1. d-a, p. 3: “Line 3.”" in text) == (not found)


def test_sentences_have_the_numbers_of_their_sources(filled: Filled) -> None:
    session = filled.session().id
    turn = filled.store.turns.add(session, "Is it lit?")
    sources = [{"document": "d-a", "page": page, "quote": f"Line {page}."} for page in (3, 5)]
    cited = [{"start": 0, "end": 10, "source": 1}, {"start": 10, "end": 27, "source": 0}]
    said = {"answer": "It is lit. **It was dark.**\n", "sources": sources, "measurements": {"citations": cited}}
    filled.store.turns.finish(turn.id, **said)
    text = filled.store.export_session(session)
    assert "It is lit. [2] **It was dark.** [1]\n" in text
    assert text.index("1. ") < text.index("p. 3") < text.index("2. ", text.index("p. 3")) < text.index("p. 5")


def test_images_become_links(filled: Filled) -> None:
    """Regression: a document could make the model write an image address that contains words of the text."""
    session = filled.session()
    filled.answered(session, "Well?", "Yes! ![all of it](https://elsewhere.example/?said=secret) [1]")
    lines = filled.store.export_session(session.id).split("\n")
    assert r"Yes! &#33;[all of it](https://elsewhere.example/?said=secret) [1]" in lines


@pytest.mark.parametrize("backslashes", range(5))
def test_html_and_images_are_escaped_after_any_backslashes(filled: Filled, backslashes: int) -> None:
    """A backslash before a sign undid its escape."""
    session, document, before = filled.session(), filled.document(), "\\" * backslashes
    evil = f"So {before}<b>, {before}<img src=x onerror=alert(1)> and {before}![p](http://elsewhere.example/p.png)"
    sources = [{"document": document.id, "place": evil, "quote": evil, "weight": 0.5}]
    turn = filled.store.turns.add(session.id, evil)
    filled.store.turns.finish(turn.id, answer=f"{evil} *well*", sources=sources)
    shown = MarkdownIt("commonmark").render(filled.store.export_session(session.id))
    assert "<em>well</em>" in shown
    assert not re.search("<(b>|img)", shown)
    said = "\\" * (backslashes // 2)  # one escapes the next letter, and two are one
    assert f"<p>So {said}&lt;b&gt;, {said}&lt;img src" in shown
    assert f" and {said}!<a href=" in shown


CODE = "Say `Vec<String>`:\n\n```c\n#include <stdio.h>\n```"


IMAGE = "<img src=x onerror=alert(1)>"


def exported(filled: Filled, *answers: str) -> str:
    """Return the Markdown of a new session with these answers."""
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
def test_code_keeps_its_signs(filled: Filled, answer: str, kept: str) -> None:
    """Code had `&lt;` in place of "<"."""
    assert kept in exported(filled, answer)


def test_an_answer_with_a_deep_list_is_exported(filled: Filled) -> None:
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
def test_text_that_only_looks_like_code_is_escaped(filled: Filled, answers: tuple[str, ...], tables: bool) -> None:
    markdown, text = MarkdownIt("commonmark", {"maxNesting": 1000}), exported(filled, *answers)
    shown = (markdown.enable("table") if tables else markdown).render(text)
    assert "<img" not in shown
    assert shown.count("<h2>") == len(answers)
    # Whatever else a program takes for code, nothing outside of fences is left as it was.
    outside = re.sub(r"^(```+|~~~+)[^\n]*\n.*?^\1[`~]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"<img|!\[", outside)
