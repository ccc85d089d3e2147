"""Web pages that fold, ask and arrange: what a person reads on them is read."""

from pathlib import Path

import pytest

from tests.ingest import makers


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            '<button class="accordion">Who?</button><div style="display:none"><p>The warden.</p></div>',
            "Who?\n\nThe warden.",
        ),
        ('<button aria-expanded="false">Where?</button><div hidden>Above.</div>', "Where?\n\nAbove."),
        ('<button>Where?</button><div class="panel">Above.</div>', "Where?\n\nAbove."),
        ('<button aria-expanded="false">Menu</button><ul><li>a</li></ul><button>Send</button><p>x</p>', "- a\n\nx"),
        (
            '<label>Tenant</label><input value="Joost"><label>Key</label><input type="hidden" value="7">',
            "Tenant Joost Key",
        ),
        ("<select><option>red<option selected>green</select> <select><option>none</select>", "green"),
        ("<textarea>The roof\nleaks.</textarea>", "The roof leaks."),
        ("<input type=checkbox checked> agreed <input type=radio> not", "☒ agreed ☐ not"),
        ('<input type="submit" value="Send"><input type="password" value="x">End', "End"),
        ('<span style="display:block">One</span><span style="display: block">two</span>', "One\n\ntwo"),
        ('<span style="display:none">One</span><b style="display:inline-block">two</b>three', "twothree"),
    ],
)
def test_what_is_seen_is_read(tmp_path: Path, body: str, expected: str) -> None:
    assert makers.read(tmp_path / "a.html", f"<!doctype html><html><body>{body}</body></html>").text == expected


def test_the_title_of_a_drawing_is_not_that_of_the_page(tmp_path: Path) -> None:
    page = "<html><body><svg><title>Icon of a bell</title></svg><h1>The mill</h1><p>x</p></body></html>"
    assert makers.read(tmp_path / "a.html", page).title == "The mill"
