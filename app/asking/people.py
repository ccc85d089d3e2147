"""Names of people in a list: several names of one person become one.

A part of a name, alone or with a title, belongs to the one full name that it begins or ends, if only one does: "Darcy"
and "Mr. Darcy" to "Fitzwilliam Darcy". Initials do as well: "F. Darcy". Two full names are never one person, nor are
names whose titles do not agree. Where a name may be that of two people, it stays alone.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

_PEOPLE = re.compile(
    r"\b(?:people|persons?|characters?|personen|figuren|leute|menschen|personnes?|personnages?|gens|personas?"
    r"|personajes?|gente)\b|^\W*(?:who|wer|qui|quién(?:es)?)\b|人物|人名|人们|[谁誰]|登場",
    re.IGNORECASE,
)
_KINDS = {
    "mr": "mr mister herr herrn monsieur señor sr don",
    "sir": "sir lord",
    "mrs": "mrs madam madame mme frau señora sra",
    "lady": "lady ms doña",
    "miss": "miss fräulein mademoiselle mlle señorita srta",
    "dr": "dr doctor doktor docteur",
    "professor": "professor prof professeur profesor",
    "captain": "captain capt kapitän capitaine capitán",
}
_TITLES = {title: kind for kind, titles in _KINDS.items() for title in titles.split()}
_BEFORE_FIRST = {"sir", "lord", "lady", "don", "doña", *_KINDS["miss"].split()}  # stand before a first name alone too
_MANS = {"mr", "dr"}, {"mr", "professor"}, {"mr", "captain"}  # titles that one man may have
_BEHIND = {"mr": "先生", "mrs": "女士 太太 夫人", "miss": "小姐", "": "さん 様 氏 くん 君"}
_AFTER = {title: kind for kind, titles in _BEHIND.items() for title in titles.split()}
_SMALL = "of the de del della di da du des la le von van der den zu ibn bin"
_PARTICLES = frozenset(_SMALL.split())
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


@dataclass(frozen=True)
class _Name:
    """A name in small letters.

    text: the name as it was given.
    title: the kind of its title, "" for none.
    words: the others.
    full: number of words that are neither initials nor particles.
    first: whether words that are one name may be a first name.
    """

    text: str
    title: str
    words: tuple[str, ...]
    full: int
    first: bool


def asks_for_people(question: str) -> bool:
    """Return whether a question asks for people, in a language of the page."""
    return bool(_PEOPLE.search(question))


def persons(names: Iterable[str]) -> dict[str, str]:
    """Return the names of its person for each name that shares one with others, with " / " between them; the fullest
    is first.
    """
    found = [name for name in map(_name, names) if name]
    titles = defaultdict(set)  # those that one name alone has
    for name in found:
        titles[name.words].add(name.title)
    people: list[list[_Name]] = []
    for name in sorted(found, key=_order):
        fitting = [own for own in people if _fits(name, own, titles[name.words])]
        if len(fitting) == 1 and not _is_husbands(name, fitting[0]):
            fitting[0].append(name)
        else:
            people.append([name])
    return {name.text: " / ".join(each.text for each in own) for own in people if len(own) > 1 for name in own}


def _name(text: str) -> _Name | None:
    """Return the parts of a name; None if it has words in small letters, as "the old man" does."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text))
    if not words or any(word[0].islower() and word.casefold() not in {*_PARTICLES, *_TITLES} for word in words):
        return None
    words, title, first = [word.casefold() for word in words], "", True
    while len(words) > 1 and words[0] in _TITLES:
        before = words.pop(0)
        title, first = title or _TITLES[before], before in _BEFORE_FIRST
    for after, kind in _AFTER.items():
        if words[-1].endswith(after) and words[-1] != after:
            words[-1], title = words[-1].removesuffix(after), kind
            break
    full = sum(not _is_initial(word) and word not in _PARTICLES for word in words)
    return _Name(text, title, tuple(words), full, first)


def _order(name: _Name) -> tuple[int, int, bool]:
    """Return what sorts full names first, and behind them one name: with initials, then with a title, then alone."""
    initials = sum(map(_is_initial, name.words))
    return -name.full, initials if name.full > 1 else -initials, not name.title


def _is_initial(word: str) -> bool:
    return len(word) == 1 and word != word.upper()


def _agree(titles: Iterable[str]) -> bool:
    """Return whether one person may have all these titles."""
    kinds = {*titles} - {""}
    return len(kinds) < 2 or kinds in _MANS


def _fits(name: _Name, person: list[_Name], alike: set[str]) -> bool:
    """Return whether a name may be that of a person. alike: the titles that its words have anywhere."""
    lead, titles = person[0].words, {each.title for each in person} - {""}
    if not _agree({name.title, *titles}):
        return False
    if name.words == lead:
        return True
    if any(map(_is_initial, name.words)):
        return _abbreviates(name.words, lead)
    if name.full != 1 or (name.title and not titles and not _agree(alike)):
        return False
    count = len(name.words)
    return lead[-count:] == name.words or (name.first and lead[:count] == name.words)


def _is_husbands(name: _Name, person: list[_Name]) -> bool:
    """Return whether a name may be that of a person's husband, as "George" is beside "Mrs. George Dorset"."""
    lead = person[0]
    married = not name.title and "mrs" in {each.title for each in person}
    return married and (lead.title == "mrs" or name.words != lead.words[: len(name.words)])


def _abbreviates(short: tuple[str, ...], long: tuple[str, ...]) -> bool:
    """Return whether names with initials are others with the same last name; some may be left out."""
    if short[-1] != long[-1] or not _same(short[0], long[0]):
        return False
    rest = iter(long[1:-1])
    return all(any(_same(each, other) for other in rest) for each in short[1:-1])


def _same(short: str, long: str) -> bool:
    return short == long or (_is_initial(short) and long.startswith(short))
