"""The map of a document: its pages, its chapters and its words. Questions about these are answered in code.

No method keeps what a text looks like, and a model does not count. So a question about nothing but the form of the
text ("How many chapters has it?") gets its answer from the table of contents, in the question's own language.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from app.asking.quotes import words_of
from app.formatting import plural
from app.language import place_words, speaking, t
from ingest import Document
from ingest.document import noun_of_pages

MOST_TOLD = 8
"""Most documents whose form is told at once."""
MOST_LISTED = 40
"""Most chapters that are listed behind their number."""


@dataclass(frozen=True)
class Chapter:
    """Pages `first` to `last` of a document, as the file counts. number: as its title says; None for no number."""

    title: str
    number: int | None
    first: int
    last: int


@dataclass(frozen=True)
class _Words:
    """Patterns for questions about the form of a text, in one language.

    pages, chapters, words: ask how many there are.
    numbered: a chapter with its number.
    where: asks for the page of a chapter, or for its title.
    small: other words that such a question may have, beside those that say nothing in any question.
    """

    pages: str
    chapters: str
    words: str
    numbered: str
    where: str
    small: str


_WORDS = {
    "en": _Words(
        r"\b(?:how many|number of) (?:pages|slides|sections)\b",
        r"\b(?:how many|number of) chapters\b",
        r"\b(?:how many|number of) words\b",
        r"\bchapter (\w+)|\b(\w+(?:rd|th)) chapter\b",
        r"\b(?:(?:which|what) (?:page|slide|section)|where|page number|called|titled?)\b",
        r"\b(?:contains?|consists?|comprises?|total|altogether|all|begins?|starts?|please|tell me)\b",
    ),
    "de": _Words(
        r"\b(?:wie ?viele|anzahl der) (?:seiten|folien|abschnitte)\b",
        r"\b(?:wie ?viele|anzahl der) kapitel\b",
        r"\b(?:wie ?viele|anzahl der) (?:wörter|worte)\b",
        r"\bkapitel (\w+)",
        r"\b(?:welche[rnm]? (?:seite|folie|abschnitt)|wo|heißt|titel|überschrift)\b",
        r"\b(?:enthält|umfasst|besteht|aus|insgesamt|zählt|lautet|beginnt|fängt|anfängt|startet|bitte)\b",
    ),
    "es": _Words(
        r"\b(?:cu[áa]ntas|número de) (?:páginas|diapositivas|secciones)\b",
        r"\b(?:cu[áa]ntos|número de) capítulos\b",
        r"\b(?:cu[áa]ntas|número de) palabras\b",
        r"\bcapítulo (\w+)",
        r"\b(?:qué (?:página|diapositiva|sección)|dónde|se llama|título)\b",
        r"\b(?:tiene|contiene|consta|total|hay|se|empieza|comienza)\b",
    ),
    "fr": _Words(
        r"\b(?:combien de|nombre de) (?:pages|diapositives|sections)\b",
        r"\b(?:combien de|nombre de) chapitres\b",
        r"\b(?:combien de|nombre de) mots\b",
        r"\bchapitre (\w+)",
        r"\b(?:quelle (?:page|diapositive|section)|où|s['’]appelle|titre)\b",
        r"\b(?:contient|comporte|compte|comprend|total|t|l|y|commence|débute)\b",
    ),
    "ja": _Words(
        "何(?:ページ|枚)",
        "何章|いくつの章",
        "何(?:語|単語)",
        "第?(十?[一二三四五六七八九]|[一二三四五六七八九]?十|\\d+)章",
        "(?:何|どの)ページ|どこ|題名|タイトル",
        "この|その|全部|合計|あり?ます|ある|です|始まり?ます|始まる|から|まで|本|文書|書類|小説|文章|[にはがのでか]",
    ),
    "zh-CN": _Words(
        "(?:多少|几)页",
        "(?:多少|几)章",
        "(?:多少|几)个?词",
        "第(十?[一二三四五六七八九]|[一二三四五六七八九]?十|\\d+)章",
        "(?:哪一?|第几|多少)页|哪里|标题|题目",
        "开始|[这本份篇部书]|文档|文件|小说|文章|一共|总共|[共有在从的里中是吗呢叫什么]",
    ),
}
_CHAPTER = re.compile(
    r"(?P<called>(?:chapter|kapitel|chapitre|capítulo)\s+|第\s*)?(?P<number>[一二三四五六七八九十]+(?=\s*章)|\w+)"
    r"(?![.\d]*\d)",
    re.IGNORECASE,
)
_ROMAN = re.compile(r"M*(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def number_of(word: str) -> int | None:
    """Return the value of a number in digits, in Roman or Chinese numerals, or as a word; None if it is none."""
    if word.isdecimal():
        return int(word)
    if word and _ROMAN.fullmatch(word.upper()):
        values = [_VALUES[each] for each in word.upper()]
        return sum(-one if one < following else one for one, following in pairwise([*values, 0]))
    tens, ten, ones = word.rpartition("十")
    if ten or re.fullmatch("[一二三四五六七八九]", word):
        digits = [unicodedata.numeric(each) if each else None for each in (tens, ones)]
        return round(10 * (digits[0] or 1) * bool(ten) + (digits[1] or 0))
    from engine.finding.numbers import numbers  # loads slowly
    from engine.finding.words import ENGLISH, FRENCH, GERMAN, SPANISH

    for language in (ENGLISH, GERMAN, FRENCH, SPANISH):
        for each in numbers(word, language):
            return int(each.value) if (each.start, each.end) == (0, len(word)) else None
    return None


def chapters(document: Document) -> list[Chapter]:
    """Return the chapters of a document: the numbered lines of its contents, or else those of the first level.

    A level that has a single line is the book itself, and what is not read is left out.
    """
    pages, unread = {page.number for page in document.pages}, {page.number for page in document.imprints}
    listed = [(entry.level, entry.title, entry.page) for entry in document.toc if entry.page in pages]
    levels = sorted({level for level, _, _ in listed})
    numbered = [
        [(at, number) for at, (own, title, _) in enumerate(listed) if own == level and (number := _number(title))]
        for level in levels
    ]
    counting = [
        found
        for found in numbered
        if len(found) > 1 and all(two[1] in (one[1] + 1, 1) for one, two in pairwise([(0, 0), *found]))
    ]
    lines = [at for at, (_, _, page) in enumerate(listed) if page not in unread]
    every = [[at for at in lines if listed[at][0] == level] for level in levels]
    chosen = counting[0] if counting else [(at, None) for at in next((each for each in every if len(each) > 1), [])]
    found = []
    for at, number in chosen:
        level, title, first = listed[at]
        behind = [page for own, _, page in listed[at + 1 :] if own <= level and page > first]
        found.append(Chapter(title, number, first, min(behind, default=len(document.pages) + 1) - 1))
    return found


def chapter_of(listed: Sequence[Chapter], page: int) -> str:
    """Return the title of the chapter that has a page, or ""."""
    return next((each.title for each in listed if each.first <= page <= each.last), "")


def _number(title: str) -> int | None:
    """Return the number of a chapter's title: 3 for "III", "3. The Dog" and "Chapter Three"."""
    found = _CHAPTER.match(title.strip())
    if found is None or not (found["called"] or _ROMAN.fullmatch(found["number"]) or found["number"].isdecimal()):
        return None
    return number_of(found["number"])


@dataclass(frozen=True)
class FormAnswer:
    """The answer to a question about the form of documents. pages: number of a document, from 0, and page it names."""

    text: str
    pages: tuple[tuple[int, int], ...] = ()


def may_ask_of_form(question: str) -> bool:
    """Return whether a question has words of those about the form of a document. No document is needed to tell."""
    patterns = (f"{each.pages}|{each.chapters}|{each.words}|{each.where}" for each in _WORDS.values())
    return any(re.search(each, question.casefold(), re.IGNORECASE) for each in patterns)


def form_answer(question: str, documents: Sequence[tuple[str, Document]]) -> FormAnswer | None:
    """Return the answer to a question about nothing but the form of documents; None for any other question.

    Args:
        question: the question.
        documents: title and text of each, in reading order.
    """
    said, pages = list[str](), list[tuple[int, int]]()
    for language, words in _WORDS.items():
        with speaking(language):
            for number, (title, document) in enumerate(documents):
                if (told := _told(question.casefold(), words, document)) is not None:
                    say, named = told
                    said.append(f"{title}: {say}" if len(documents) > 1 else say)
                    pages += [(number, page) for page in named]
        if said:
            return FormAnswer("\n".join(said), tuple(pages))
    return None


def _told(question: str, words: _Words, document: Document) -> tuple[str, list[int]] | None:
    """Return the answer for one document, and the pages that it names."""
    if _is_only(question, words, words.pages):
        return f"{plural(len(document.pages), noun_of_pages(document.format))}.", []
    if _is_only(question, words, words.words):
        return f"{plural(_words_in(document.text), 'word')}.", []
    if not re.search(f"{words.chapters}|{words.where}", question):
        return None
    found = chapters(document)
    if found and _is_only(question, words, words.chapters):
        return _listed(found, document), []
    if not re.search(words.where, question):
        return None
    for chapter in found:
        if len(chapter.title.split()) > 1 and _is_only(question, words, rf"\b{re.escape(chapter.title)}\b"):
            return f"{_place(chapter, document)}.", [chapter.first]
    for match in re.finditer(words.numbered, question):
        number = number_of(next(filter(None, match.groups())))
        if number and _is_only(question, words, re.escape(match[0])):
            meant = [each for at, each in enumerate(found, 1) if (each.number or at) == number]
            told = "; ".join(_place(each, document) for each in meant)
            return (f"{told}." if told else _listed(found, document)), [each.first for each in meant]
    return None


def _words_in(text: str) -> int:
    """Return the number of words; in a script without blanks, of characters."""
    return len(words_of(re.sub("['’]", "", text)).split())


def _is_only(question: str, words: _Words, asked: str) -> bool:
    """Return whether a question asks this, and says nothing else."""
    from engine.finding.words import NO_PLACE, terms  # loads slowly

    rest = re.sub(asked, " ", question, flags=re.IGNORECASE)
    return rest != question and NO_PLACE.issuperset(terms(re.sub(f"{words.where}|{words.small}", " ", rest)))


def _listed(found: Sequence[Chapter], document: Document) -> str:
    """Return the number of chapters, and where each begins."""
    places = "; ".join(_place(each, document) for each in found[:MOST_LISTED])
    return f"{plural(len(found), 'chapter')}: {places}{'; …' if len(found) > MOST_LISTED else '.'}"


def _place(chapter: Chapter, document: Document) -> str:
    """Return the title of a chapter with its first page."""
    noun, page = noun_of_pages(document.format), document.pages[chapter.first - 1]
    place = t(f"{noun} {{n}}", n=page.number) if noun == "section" else place_words(page.label)
    return f"{chapter.title}, {place}"
