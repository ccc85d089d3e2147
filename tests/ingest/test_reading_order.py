"""Reading order of boxes on a slide."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pptx.util import Inches

from ingest import Document, ingest
from ingest.print.reading_order import Box, in_reading_order
from tests.ingest.makers import check_invariants
from tests.ingest.office_makers import BLANK, COMPARISON, slides, text_box


def read(path: Path, *fill: Callable[[Any], None], layout: int = BLANK) -> Document:
    document = ingest(slides(path, *fill, layout=layout))
    check_invariants(document)
    return document


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        ({"a": (0, 0, 10, 2), "b": (0, 3, 10, 5)}, "ab"),
        ({"a": (0, 0, 4, 5), "b": (5, 0, 9, 5)}, "ab"),
        # Two columns with headings touch below each other; text above and below reaches a little into them.
        (
            {
                **{"a": (0, 0, 9, 2.05), "b": (0, 2, 4, 3), "d": (5, 2, 9, 3), "c": (0, 3, 4, 6), "e": (5, 3, 9, 6)},
                "f": (0, 5.98, 9, 7),
            },
            "abcdef",
        ),
        # Cards in two rows, their headings just above their texts.
        (
            {
                **{"a": (0, 0, 3, 1), "b": (0, 1.1, 3, 2), "c": (4, 0, 7, 1), "d": (4, 1.1, 7, 2)},
                **{"e": (0, 4, 3, 5), "f": (0, 5.1, 3, 6), "g": (4, 4, 7, 5), "h": (4, 5.1, 7, 6)},
            },
            "abcdefgh",
        ),
        ({"a": (0, 0, 3, 3), "b": (2, 1, 5, 4), "c": (1, 2, 4, 5)}, "abc"),  # nothing parts them
        ({"b": (1, 0, 2, 1), "a": (0, 0, 1, 1)}, "ab"),
    ],
)
def test_reading_order(boxes: dict[str, tuple[float, float, float, float]], expected: str) -> None:
    for names in (sorted(boxes), sorted(boxes, reverse=True)):
        assert "".join(in_reading_order((Box(*boxes[name]), name) for name in names)) == expected


def test_more_boxes_than_anybody_reads_take_no_time() -> None:
    many = [(Box(index, 0, index + 0.5, 1), index) for index in reversed(range(20_000))]
    assert in_reading_order(many) == list(range(20_000))


def test_what_was_put_in_last_may_come_first(tmp_path: Path) -> None:
    """The file has the order of drawing."""

    def fill(slide: Any) -> None:
        slide.shapes.title.text = "Compared"
        slide.shapes.title.top = Inches(7)  # read first wherever it stands
        for index, text in ((4, "dear"), (3, "Gas"), (2, "cheap"), (1, "Oil")):
            slide.placeholders[index].text = text  # placed by the layout
        group = slide.shapes.add_group_shape()
        text_box(group.shapes, "right", 5, 0)
        text_box(group.shapes, "left", 1, 0)
        inner = group.shapes.add_group_shape()
        text_box(inner.shapes, "innermost", 3, 0)

    assert read(tmp_path / "a.pptx", fill, layout=COMPARISON).text.split() == [
        *("Compared", "left", "innermost", "right", "Oil", "-", "cheap", "Gas", "-", "dear"),
    ]
