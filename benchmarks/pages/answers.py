"""The section on finding and answering: text search, the memory, and passages read alone."""

from __future__ import annotations

from benchmarks.freshness import Row
from benchmarks.pages.markup import conditions, markdown, share
from benchmarks.suite.answers import MEMORY
from benchmarks.suite.answers_tables import AT, OURS, PASSAGES, PLAIN, SEVERAL

LETTERS = 600  # of a passage, as the app has them
WAYS = {
    MEMORY: "the memory, which holds the whole text",
    PLAIN: "plain text search: three passages of 600 letters, alone",
    "plain 6 of 300": "plain text search: six passages of 300 letters, alone",
    PASSAGES: "text search and the memory's attention: three passages of 600 letters, alone",
    "passages 6 of 300": "the same, six passages of 300 letters",
    OURS: "ours: the memory where the text says the same, else these three passages; for SmolLM2 three by stems, and "
    "at 16K and 32K sixteen by stems in place of the memory",
    "place": "the passages that hold the answer, alone",
}
COMPARED = {"memory": MEMORY, "plain": PLAIN}
FINDERS = {
    "plain": "plain text search",
    "words": "text search by stems",
    "looked": "the attention of the memory's answer",
    "passages": "ours: both",
}
# Goals: shares in %, points, and times.
FOUND, POINTS = {"reader's questions": 90, SEVERAL: 85}, 10
TIMES = (("memory", "the memory", 1.15), ("place", "the passages that hold the answer", 0.75))
MARKED = (
    ("right", "right answers with a warning, <= 10 %", 0.1),
    ("wrong", "wrong answers with a warning, >= 60 %", 0.6),
    ("absent", "warnings where the text does not tell, >= 80 %", 0.8),
)


def answers(rows: list[Row]) -> list[str]:
    """Return the tables of finding and answering, by model and set of questions."""
    text = [
        "## Finding the place, and answering",
        f"{conditions(rows)} Reader's questions are of a person, over novels, an essay, papers, meetings, contracts "
        "and minutes; five in six have few words of their place. Their texts have 3,400 to 6,700 tokens. Planted: "
        "statements of the suite, in texts of so many tokens. `python -m benchmarks.suite.answers` measures it.",
        "### Right answers",
        "Than memory and than plain search: questions where it is right and the other is not / the other way round. "
        "With the place: right answers of those whose passages hold the answer. Tokens: of these passages, on average.",
    ]
    answered = sorted((row for row in rows if row["row"] == "answered"), key=_place)
    header = ["model", "questions", "answered from", "right", "than memory", "than plain search", "with the place"]
    text.append(markdown([*header, "tokens"], [_answer(row) for row in answered]))
    text += ["### Found", f"The place lies among the best 1, 3, 6 or 12 passages of about {LETTERS} letters, in %."]
    found = [row for row in rows if row["row"] == "found" and row["letters"] == LETTERS]
    header = ["model", "questions", "found by", *(f"@{most}" for most in AT), "n"]
    text.append(markdown(header, [_found(row) for row in found]))
    text += [
        "### Marked",
        "Answers that get a warning or have marked words, in % of the right ones, of the wrong ones, and of those to "
        "questions that the text does not answer.",
    ]
    marked = sorted((row for row in rows if row["row"] == "marked" and row["way"] != "place"), key=_place)
    header = ["model", "questions", "answered from", "right", "wrong", "not in the text"]
    text.append(markdown(header, [_marked(row) for row in marked]))
    text += ["### Goals", "What ours was to reach, and whether it does."]
    text.append(markdown(["model", "questions", "goal", "measured", "reached"], _goals(answered, found, marked)))
    return text


def whole_books(rows: list[Row]) -> list[str]:
    """Return the table of questions about whole books, by model."""
    header = [
        "model",
        "questions",
        "tokens",
        "right: plain search",
        "ours",
        "ours / plain alone",
        "place: plain search",
    ]
    return [
        "### Whole books",
        f"{conditions(rows)} The reader's questions about stretches of books, asked of the whole books. Plain search: "
        "three passages of 600 letters. Ours: sixteen begin an answer, and go on or leave it to three of them; "
        "SmolLM2 has the best three by words at once. "
        "Place: whether the passages hold it. Seconds: to the first token, beside other work. "
        "`python -m benchmarks.suite.whole_books` measures it.",
        markdown([*header, "ours", "seconds"], [_whole_book(row) for row in rows]),
    ]


def _whole_book(row: Row) -> list[str]:
    right, held = ([share(row[way][name], row["n"]) for way in ("plain", "ours")] for name in ("right", "holds"))
    seconds = " / ".join(str(row[way]["first_token"]) for way in ("plain", "ours"))
    beside = "{} / {}".format(*row["beside"])
    return [row["model"], str(row["n"]), f"{row['tokens']:,}", *right, beside, *held, seconds]


LIST_WAYS = {
    "sweep": "ours: every place by itself, checked and joined",
    "places": "the same model shown every place by itself",
    "whole": "one question over the whole text",
}


def lists(rows: list[Row]) -> list[str]:
    """Return the table of complete lists and counts, by model."""
    lines = []
    for row in rows:
        for way, words in LIST_WAYS.items():
            found, places = row[way]["found"], row["places"]["found"]
            counts = share(row[way]["counts"], row["counted"]) if way != "places" else "–"
            beside = f"{found / places:.2f}" if places else "–"
            told = f"{100 * row[way]['precision']:.0f}"
            lines.append([row["model"], words, share(found, row["things"]), beside, told, counts, str(row["n"])])
    header = [
        "model",
        "listed by",
        "things found",
        "of what each place shows",
        "precision, %",
        "exact counts",
        "questions",
    ]
    return [
        "### Complete lists and counts",
        f"{conditions(rows)} Things of five kinds are planted in texts of {rows[0]['tokens']:,} tokens of prose, and "
        "those of one kind are asked for. Precision: the share of what is listed that was asked for, over questions. "
        "Places are read with full attention, and so is the whole. `python -m benchmarks.suite.lists` measures it.",
        markdown(header, lines),
    ]


def _goals(answered: list[Row], found: list[Row], marked: list[Row]) -> list[list[str]]:
    """Return a line for each goal, model and set of questions."""
    lines: list[list[str]] = []

    def goal(row: Row, words: str, measured: str, reached: bool) -> None:
        lines.append([row["model"], row["asked"], words, measured, "yes" if reached else "no"])

    for row in found:
        share_found = next((goal for name, goal in FOUND.items() if row["asked"].startswith(name)), 0)
        if row["finder"] == "passages" and share_found:
            words = f"the place is among six passages, >= {share_found} %"
            goal(row, words, share(row["found@6"], row["n"]), 100 * row["found@6"] >= share_found * row["n"])
    for row in answered:
        if row["way"] == OURS:
            if asked := row["beside_plain"][2]:
                points, spread = difference(*row["beside_plain"])
                words = f"{points:+.0f} points [{points - spread:+.0f} to {points + spread:+.0f}], n = {asked}"
                goal(row, f"right, >= {POINTS} points above plain search", words, points >= POINTS)
            for name, words, least in TIMES:
                own, other, asked = row[f"right_beside_{name}"]
                if other:
                    measured = f"{own / other:.2f} times ({own:.3g} and {other:.3g} of {asked})"
                    goal(row, f"right, >= {least} times {words}", measured, own >= least * other)
    for row in marked:
        if row["way"] == OURS:
            for kind, words, least in MARKED:
                count, asked = row[kind]
                reached = count >= least * asked if kind != "right" else count <= least * asked
                if asked:
                    goal(row, words, share(count, asked), reached)
    return lines


def difference(better: int, worse: int, asked: int) -> tuple[float, float]:
    """Return how many points of a hundred one way is above another on the same questions, and its spread (95 %)."""
    points = (better - worse) / asked
    return 100 * points, 196 * ((better + worse) / asked - points**2) ** 0.5 / asked**0.5


def _place(row: Row) -> tuple[str, str, int]:
    return row["model"], row["asked"], list(WAYS).index(row["way"])


def _answer(row: Row) -> list[str]:
    right = share(row["n"] * row["right"], row["n"])
    beside = [_beside(row[f"beside_{name}"]) if row["way"] != way else "–" for name, way in COMPARED.items()]
    held = [f"{row['right_with_place']:.3g} of {row['with_place']}", str(row["tokens"])]
    return [
        row["model"],
        row["asked"],
        WAYS[row["way"]],
        right,
        *beside,
        *(("–", "all") if row["way"] == MEMORY else held),
    ]


def _beside(counts: list[int]) -> str:
    better, worse, asked = counts
    return f"{better} / {worse}" if asked else "–"


def _found(row: Row) -> list[str]:
    shares = [f"{100 * row[f'found@{most}'] / row['n']:.0f}" for most in AT]
    return [row["model"], row["asked"], FINDERS[row["finder"]], *shares, str(row["n"])]


def _marked(row: Row) -> list[str]:
    return [row["model"], row["asked"], WAYS[row["way"]], *(share(*row[kind]) for kind in ("right", "wrong", "absent"))]
