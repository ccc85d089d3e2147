"""Tests of answers that begin only to repeat themselves, and of those that do not."""

import re
from pathlib import Path

import pytest

from app.asking.repetition import TAIL, repetition_start
from ingest import ingest

SAMPLE = Path(__file__).parents[3] / "assets" / "sample" / "three-adventures-and-a-register.html"
CLAIM = "DPR outperforms BM25 by a large margin on all five datasets"
PARAGRAPH = (
    "The encoder is a neural network that is trained to map a sequence of tokens to a vector of length M, where M is "
    "the length of the input sequence. It takes a batch of questions and returns a batch of vectors, which are then "
    "compared with those of all passages."
)
READER, DECODER, BOTH = (
    f"The reader is {what} that can take a sequence of passages and extract the answer from it."
    for what in ("a reader", "a decoder", "both")
)


def kept_of(text: str) -> str | None:
    """Return the text that is kept, at the first cut, of a text that comes a few characters at a time."""
    for end in range(1, len(text) + 1):
        kept = repetition_start(text[:end])
        if kept is not None:
            return text[:kept]
    return None


REPEATED = {
    "a sentence": (f"It is better. {CLAIM}. " + f"{CLAIM}. " * 8, f"It is better. {CLAIM}."),
    "a clause": (f"It says that {CLAIM}, and " + f"that {CLAIM}, and " * 8, f"It says that {CLAIM}"),
    "a sentence on lines": (f"{CLAIM}.\n" * 8, f"{CLAIM}."),
    "a name in a list": (
        "The authors:\n\n- Ledell Wu\n" + "- Yi-Chiang Liu\n" * 18,
        "The authors:\n\n- Ledell Wu\n- Yi-Chiang Liu",
    ),
    "a name in a line": ("Ledell Wu, " + "Yi-Chiang Liu, " * 18, "Ledell Wu, Yi-Chiang Liu"),
    "a bold name": ("* **Seyfredi-Seyfredi**\n" * 18, "* **Seyfredi-Seyfredi**"),
    "a numbered item": (
        "".join(f"{number}. The lamp was lit at dusk.\n" for number in range(1, 40)),
        "1. The lamp was lit at dusk.",
    ),
    "numbered items in a line": (
        " ".join(f"{number}. The lamp was lit at dusk" for number in range(1, 40)),
        "1. The lamp was lit at dusk",
    ),
    "a number that counts up": (
        "".join(f"In {year} the keeper wrote in the book. " for year in range(1890, 1950)),
        "In 1890 the keeper wrote in the book.",
    ),
    "a paragraph": (f"{PARAGRAPH}\n\n" * 8, PARAGRAPH),
    "a long paragraph": (f"{PARAGRAPH} " * 2 + "\n\n" + f"{PARAGRAPH}\n\n" * 2, PARAGRAPH),
    "a word": (
        "By God, I cannot find it. Once in a while I" + " call" * 190,
        "By God, I cannot find it. Once in a while I call",
    ),
    "two words": ("He said: " + "so on and " * 40, "He said: so on and"),
    "digits": ("A batch of 1" + "0" * 400, "A batch of 10"),
    "letters": ("No" + "o" * 300, "No"),
    "signs": ("So" + "." * 900, "So."),
    "words without blanks": ("他说：" + "我不知道该怎么回答这个问题。" * 9, "他说：我不知道该怎么回答这个问题。"),
    "rows": ("| a | b |\n|---|---|\n" + "| lamp | lit |\n" * 20, "| a | b |\n|---|---|\n| lamp | lit |"),
    "code": ("```\nstart()\n" + "light(lamp)\n" * 20, "```\nstart()\nlight(lamp)"),
    "after code": ("```\nlight(lamp)\n```\n" + f"{CLAIM}. " * 5, f"```\nlight(lamp)\n```\n{CLAIM}."),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_repetition_is_cut_and_its_words_kept_once(name: str) -> None:
    text, kept = REPEATED[name]
    assert kept_of(text) == kept


def test_a_repetition_in_changing_order_is_cut() -> None:
    said = " ".join([READER, DECODER, READER, BOTH, DECODER, READER, DECODER, DECODER, BOTH, READER, BOTH, DECODER])
    kept = kept_of(said + " " + said)
    assert kept is not None
    assert {READER, DECODER, BOTH} <= set(re.findall(r"The[^.]*\.", kept))
    assert len(kept) < len(said)


VERSE = "The keeper climbed {} steps and lit the lamp against the {}.\n"
REFRAIN = "Burn, little lamp, burn bright,\nBurn for the boats of the night,\nTill all of the boats come home,\n"
HONEST = {
    "nothing": "",
    "a refrain of two": "".join(
        VERSE.format(steps, weather) + REFRAIN * 2 for steps, weather in (("forty", "rain"), ("sixty", "snow"))
    ),
    "a refrain after each verse": "\n".join(
        VERSE.format(steps, weather) + REFRAIN
        for steps, weather in (("forty", "rain"), ("sixty", "snow"), ("ninety", "fog"))
    ),
    "bells": "Of the bells, bells, bells, bells, bells, bells, bells, in the clamour and the clangour of the bells!",
    "a list of names": "".join(
        f"{number}. {first} {last}\n"
        for number, (first, last) in enumerate((a, b) for a in ("Ann", "Ben", "Cy", "Dee") for b in ("Li", "Wu", "Xu"))
    ),
    "a list with one beginning": "".join(
        f"- The lamp was lit by {name} at dusk.\n" for name in ("Ann", "Ben", "Cy", "Dee", "Eve", "Fay", "Gus", "Hal")
    ),
    "chapters": "".join(f"Chapter {number}\n" for number in range(1, 41)),
    "years and figures": "".join(f"In {year} there were {year * year % 97} ships.\n" for year in range(1890, 1930)),
    "a table of figures": "| Year | Ships |\n|---|---|\n" + "".join(f"| {y} | 0 | n/a |\n" for y in range(1890, 1950)),
    "a wide table": "| " + "n/a | " * 40 + "\n|" + "---|" * 40 + "\n",
    "code": "```python\n" + "".join(f"lamp[{number}] = 0\n" for number in range(60)) + "    }\n" * 4 + "```\n",
    "figures": "0, " * 60,
    "no again and again": "".join(f"Was it {each}? No. " for each in ("lit", "out", "lent", "lost", "sold", "his")),
    "a rule": "Part one\n" + "-" * 80 + "\nPart two\n" + "=" * 80 + "\n",
}


@pytest.mark.parametrize("name", HONEST)
def test_an_ordinary_answer_is_not_cut(name: str) -> None:
    assert kept_of(HONEST[name]) is None


def test_no_passage_of_the_sample_book_is_cut() -> None:
    text = ingest(SAMPLE).text
    for begin in range(0, len(text), TAIL):
        passage = text[begin : begin + TAIL]
        for end in range(0, len(passage), 97):
            assert repetition_start(passage[:end]) is None, passage[:end][-300:]


def test_a_repetition_far_behind_the_beginning_is_found() -> None:
    text = ingest(SAMPLE).text[: 3 * TAIL] + "\n\n"
    assert repetition_start(text + f"{CLAIM}. " * 4) == len(text + CLAIM) + 1
