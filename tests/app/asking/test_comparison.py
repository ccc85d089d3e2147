"""Two documents compared: other forms of a sentence, sentences that one has alone, and those said in other words."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from app.asking.answers import Checked
from app.asking.comparison import SAME, _joined, changed, comparison, differences, says_the_same, two
from app.asking.quotes import Span, sentences_of
from app.asking.sources import source_at
from app.asking.sweep import Finding, known, sweep
from app.asking.table_text import written
from app.errors import UsageError
from app.home import sample_book
from app.service import Service
from ingest import ingest
from tests.app.helpers import add, book_text, read_through

FIRST = """# Rent

The tenant pays 900 euros of rent every month. The landlord may raise the rent after two years.

# Pets

The tenant may keep a small dog in the flat. Cats belong to the neighbours.

# Garden

The garden belongs to the ground floor alone.
"""
SECOND = """# Rent

The tenant pays 950 euros of rent every month. The landlord may raise the rent after two years.

# Pets

The tenant may not keep a small dog in the flat. Cats belong to the neighbours.

# Keys

Three keys of the front door are handed over on arrival. A lost key costs forty euros.
"""
HEARD = "In May, so we hear, a lamp was bought."


@pytest.fixture
def names(service: Service, tmp_path: Path) -> list[str]:
    found = []
    for name, text in (("Lease 2023", FIRST), ("Lease 2024", SECOND)):
        path = tmp_path / f"{name}.md"
        path.write_text(text, encoding="utf-8")
        found += read_through(service, add(service, path)).document_ids
    return found


def test_what_differs_and_what_stands_in_one_alone_is_found(service: Service, names: list[str]) -> None:
    task = comparison(service, two(service, names))
    told = task.told(list(sweep(service, task)))
    rows = [
        (each["kind"], each["own"], each["section"], each["about"], each["passages"][each["own"]]["quote"])
        for each in told["rows"]
    ]
    assert rows == [
        ("differs", 0, "Rent", ["number"], "The tenant pays 900 euros of rent every month."),
        ("differs", 0, "Pets", ["not"], "The tenant may keep a small dog in the flat."),
        ("alone", 1, "Keys", [], SECOND[SECOND.index("Three keys") :].strip()),
        ("alone", 0, "Garden", [], "The garden belongs to the ground floor alone."),
    ]
    rent, dog, keys, _ = told["rows"]
    assert [quote[slice(*at[0])] for quote, at in _marked(rent)] == ["900", "950"]
    assert [[quote[slice(*each)] for each in at] for quote, at in _marked(dog)] == [[], ["not"]]
    assert keys["passages"][0]["quote"] == "Cats belong to the neighbours.", "it would stand behind this"
    lines = written(told, "md").splitlines()
    assert lines[0] == "|  | Rent | Rent |"
    assert lines[2].startswith("| differs, number | The tenant pays 900 euros of rent every month. (")
    assert lines[5].endswith(" |  |"), "the second does not have it"
    line, *_, last = csv.DictReader(io.StringIO(written(told, "csv")))
    assert (line["section"], line["about"]) == ("Rent", "number")
    assert (last["kind"], last["second"]) == ("alone", "")


def _marked(row: dict) -> list[tuple[str, list[tuple[int, int]]]]:  # type: ignore[type-arg]
    return [(each["quote"], spans) for each, spans in zip(row["passages"], row["changed"], strict=True)]


def test_changes_in_a_long_text_are_found_and_nothing_else() -> None:
    """A number, a word or a negation is changed in some sentences of the sample book, and some are left out."""
    book = sample_book()
    assert book is not None
    text, chance = ingest(book).text, Random(7)
    sentences = [each for each in sentences_of(text, Span(0, len(text))) if 60 < each.end - each.start < 300]
    chosen = sorted(chance.sample(sentences, 60), key=lambda each: each.start)
    other, at = "", 0
    for number, each in enumerate(chosen):
        words = text[each.start : each.end].split()
        middle = len(words) // 2
        changed_to = [
            [],
            [*words[:middle], "Zanzibar", *words[middle + 1 :]],
            [*words[:middle], "317", *words[middle:]],
        ]
        other += text[at : each.start] + " ".join(changed_to[number % 3])
        at = each.end
    found = differences(text, other + text[at:])
    told = {(each.start, each.shared is not None) for each in found if not each.own}
    planted = {(each.start, number % 3 == 0) for number, each in enumerate(chosen)}
    assert len(told & planted) >= 0.95 * len(planted)
    assert len(told - planted) <= 0.05 * len(planted)
    assert sum(each.own for each in found) <= 1


def test_what_the_second_adds_is_told_beside_a_sentence_that_is_like_it() -> None:
    """An added sentence was left out where one of the first was like it, or said the same but for a negation."""
    dog, cat, parrot = (f"The tenant may keep a small {each} in the flat." for each in ("dog", "cat", "parrot"))
    added = [cat, parrot]
    for first, second in ((dog, f"{cat} {parrot}"), (dog, f"{dog} {dog.replace('may', 'may not')}")):
        found = differences(first, second)
        told = {second[each.start : each.end] for each in found if each.own}
        told |= {second[slice(*each.other)] for each in found if not each.own and each.other}
        assert told == {*added}
        added = [dog.replace("may", "may not")]


def test_equal_texts_do_not_differ_and_strange_ones_stand_alone() -> None:
    text = book_text(20)
    assert differences(text, text) == ()
    assert differences("", "") == ()
    other = "Le chat dort sous la grande table."
    assert [(each.own, each.other) for each in differences(text, other) if each.own] == [(1, None)]
    assert all(each.shared == 0.0 for each in differences(text, other))


def test_a_sentence_in_other_words_is_looked_for_and_counts_with_its_numbers(service: Service, tmp_path: Path) -> None:
    texts = (
        "The committee bought the old lamp of the pier in May.",
        f"{HEARD}\n\nThe lighthouse stands on a hill above the harbour of the town.",
    )
    ids = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.txt"
        path.write_text(text, encoding="utf-8")
        ids += read_through(service, add(service, path)).document_ids
    task = comparison(service, two(service, ids))
    assert known(service, task) == []
    findings = list(sweep(service, task))
    assert len(findings) == task.total
    told = task.told(findings)
    assert [each["doubtful"] for each in told["rows"] if not each["own"]] == [True], "a tiny model finds nothing"
    [number] = [at for at, each in enumerate(findings) if each.place.document == ids[1]]
    place = findings[number].place
    source = source_at(service.document_cache, ids[1], place.start, place.end, 1.0)

    def answered(said: str) -> Finding:
        items = SAME.items(Checked(said, "", [vars(source)], {}), service.document_cache)
        return replace(findings[number], items=tuple(items))

    assert [each.quote for each in answered("in May so we hear a lamp was bought").items] == [HEARD]
    assert answered("A lamp was sold.").items == answered("").items == ()
    for said, alone in ((HEARD, 0), ("The lighthouse stands on a hill above the harbour of the town.", 1)):
        findings[number] = answered(said)
        assert len(findings[number].items) == 1
        assert sum(not each["own"] for each in task.told(findings)["rows"]) == alone, said


def test_the_same_needs_the_numbers_and_no_other_negation() -> None:
    assert says_the_same("The rent is 900 euros.", "Nine hundred euros of rent are due.")
    assert not says_the_same("The rent is 900 euros.", "The rent is 950 euros.")
    assert not says_the_same("The rent is due in May.", "The rent is not due in May.")
    assert not says_the_same("The rent is due in May.", "The moon is green.")
    assert changed("A big dog barks", "A dog barks loudly") == ([(2, 5)], [(12, 18)])


def test_only_neighbours_are_told_as_one_passage() -> None:
    text = "\n\n".join(f"Number {n} of the list speaks of {word}." for n, word in enumerate(("geese", "hens", "ducks")))
    found = differences(text, "Something else entirely happens here today.")
    own = [each for each in found if not each.own]
    assert len(_joined(own)) == 1
    assert len(_joined([own[0], own[2]])) == 2


def test_there_are_two_documents(service: Service, names: list[str]) -> None:
    assert [row.document for row in two(service, names)] == names
    for some in (names[:1], [names[0]] * 2, [*names, names[0]]):
        with pytest.raises(UsageError, match="two documents"):
            two(service, some)
