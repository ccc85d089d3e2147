"""Text search: passages ranked by the words that they share with a question (BM25)."""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import bm25s
import numpy as np
from numpy.typing import NDArray

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it tells of each index
STEM = 6  # letters of a word that count: "arbitration" finds "arbitrator"
_ENDING = re.compile(r"(?<=\w{3})(?:ings?|ers?|e[dns]?|ly|s)$")  # does not count: "chair" finds "chaired"
COMPOUND = 10  # letters from which a word may have others in it: "Kündigungsfrist" is found by "Frist"
AHEAD, INSIDE = 3, 4  # letters at least before such a word, and of it
INNER = (
    "~"  # before the term of such a word, which a question is searched for only where the text lacks the word itself
)
# A word that stands in at most 5 passages, or in at most a tenth of all, belongs to these places. A word that stands in
# more belongs to the whole text.
FEW, RARE = 5, 0.1
# Share of its neighbours' scores that a passage gets: what a question is about is also told around its answer.
NEAR = 0.25

_WORD = re.compile(r"\w+")


# Words of questions that say nothing about the place, by language: English, German, French, Spanish. Each language has
# all its words, also those that another has too.
ENGLISH, GERMAN, FRENCH, SPANISH = range(4)
_ASKING = (
    """
    a an the is are was were be been am do does did has have had will would can could should of in on at to for from by
    with about and or it its this that these those he she his her they their them i you we what who whom whose which
    when where why how many much there any
    """,
    """
    der die das den dem des ein eine einen einem einer ist sind war waren wird wurde wurden hat haben hatte will von im
    in am an auf zu zum zur mit für bei und oder es er sie ihr du was wer wem wen wessen welche welcher welches wann wo
    wohin woher warum wieso wie viel viele gibt
    """,
    """
    le la les un une des du de est sont était a ont avait à au aux en dans sur pour par avec et ou y on il elle ils son
    ce cette que qui quoi quel quelle quels quelles quand où pourquoi comment combien
    """,
    """
    el la los las un una unos unas de del es son fue era a ha has han he había en con al por para y o le les su que qué
    quién quiénes cuál cuáles cuándo dónde cómo cuánto cuánta cuántos cuántas
    """,
)
_SMALL = frozenset(" ".join(_ASKING).split())
_SMALL_CUT = _SMALL.union(_ENDING.sub("", word) for word in _SMALL)


def stem(word: str) -> str:
    """Return the first letters of a word without its ending. What is left of "Andes" is not the small word "and"."""
    short = _ENDING.sub("", word)
    return f"{short}_" if short in _SMALL_CUT and word not in _SMALL else short[:STEM]


_BY_LANGUAGE = [frozenset(map(stem, words.split())) for words in _ASKING]
ASKING = frozenset().union(*_BY_LANGUAGE)

# Words for the text itself, and for its subject, say nothing about a place in it either.
_TEXT = """
    text document book story novel plot theme topic main idea point characters
    buch dokument geschichte roman handlung thema figuren
    livre histoire thème personnages
    texto libro historia novela trama tema
"""
NO_PLACE = ASKING.union(map(stem, _TEXT.split()))
# Words that ask for a summary or a list. English "resumed" does not, Spanish "Resume" at the beginning does.
_WHOLE = re.compile(
    r"\b(?:summar(?:y|ies|i[sz]\w*)|overview|outline|gist|recap|synopsis"
    r"|zusammenfass\w*|überblick|worum geht|wovon handelt|fass\w*(?=.* zusammen\b)"
    r"|résum\w*|aperçu|de quoi (?:s'agit|parle|traite)"
    r"|resumen|resumir|resúm\w*|de qué (?:trata|habla))\b"
    r"|\bwhat(?:'s| is| was)? (?:(?:the|this) \w+|it|this) about\W*$"
    r"|^\W*(?:list|name all|liste|nenne alle|enumera|resum[ae])\b"
    r"|总结|概括|摘要|要約|まとめ|요약",
    re.IGNORECASE,
)
# Words beside these that name nothing of the text: for the form of the answer, kinds of texts, and things to list.
_HOW = """
    2 3 4 5 6 7 8 9 10 20 50 100 150 200 250 300 500 please give me us tell make write need simple terms most detail
    english short brief concise sentence word line bullet paragraph key important argument message finding conclusion
    result content whole entire all every everything two three four five ten few people person name place event date
    number fact chapter section article paper report essay contract agreement meeting minutes author
    bitte gib mir uns ich kann kannst können schreib kurz knapp satz sätze wort stichpunkte punkte absatz wichtig inhalt
    ganz zwei drei fünf orte ereignisse kapitel abschnitt artikel bericht aufsatz vertrag zusammen
    s te plaît tu vous peux pouvez donne moi nous fais faites l d court bref brève phrase mot clé principal idée tout
    tous deux trois cinq nom lieux événement roman chapitre rapport
    favor puedes lo da dame haz hazme nos breve frase palabra punto párrafo clave todo toda dos tres cinco nombres
    lugares fechas capítulo artículo informe
"""
_NOTHING_NAMED = NO_PLACE.union(map(stem, _HOW.split()))

# Han, Kana, Thai, Lao, Burmese, Khmer and Hangul: words have no blanks between them, or endings joined to them.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")


def terms(text: str) -> list[str]:
    """Return the terms of a text: the stems of its words, and pairs of characters where words are not divided."""
    text = unicodedata.normalize("NFKC", text).casefold()
    found: list[str] = []

    def pairs(run: re.Match[str]) -> str:
        found.extend(run[0][at : at + 2] for at in range(max(1, len(run[0]) - 1)))
        return " "

    found.extend(map(stem, _WORD.findall(_UNSPACED.sub(pairs, text))))
    return found


def inner_terms(text: str) -> list[str]:
    """Return the terms of words that may stand inside the long words of a text; see `INNER`."""
    long = (word for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()) if len(word) >= COMPOUND)
    return [INNER + stem(word[at:]) for word in long for at in range(AHEAD, len(word) - INSIDE + 1)]


def language_of(text: str) -> int:
    """Return the language of a text, of those above: the one with most of its small words."""
    said = Counter(terms(text))
    shared = [sum(said[term] for term in own) for own in _BY_LANGUAGE]
    return shared.index(max(shared))


def asks_to_retell(question: str) -> bool:
    """Return whether a question asks for a summary or a list, of the whole text or of something in it."""
    return bool(_WHOLE.search(question))


class WordSearch:
    """An index of the words of passages. Searching takes well under a millisecond for a novel."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Index passages, about a second for a million tokens. texts: their words, at least one passage."""
        cut = [[*terms(text), *inner_terms(text)] for text in texts]
        self._held_by = Counter(term for each in cut for term in set(each))
        self._passages = len(cut)
        self._index = bm25s.BM25(k1=1.2)
        if self._held_by:
            self._index.index(cut, show_progress=False)

    def scores(self, question: str) -> NDArray[np.float32]:
        """Return the BM25 score of each passage with a share of its neighbours', float32 [passages].

        It is 0 where a passage shares no word with the question.
        """
        asked = self.known(question)
        if not asked:
            return np.zeros(self._passages, dtype=np.float32)
        own: NDArray[np.float32] = self._index.get_scores(asked)
        around = np.pad(own, 1)
        return np.where(own > 0, own + NEAR * (around[:-2] + around[2:]), own)

    def leads(self, question: str) -> bool:
        """Return whether the words of a question may lead to places that it is about."""
        return bool(self.known(question)) and not self.is_whole(question)

    def is_whole(self, question: str) -> bool:
        """Return whether a question is about the whole text.

        Its words name no place ("What is the main theme?"), or it asks for a summary or a list and each word stands in
        many passages. A rare word leads to its passages, and an unknown word to none. Unknown pairs of characters are
        left out: many belong to two words.
        """
        rest = _WHOLE.sub(" ", question)
        if rest == question:
            return NO_PLACE.issuperset(terms(question))
        most = max(FEW, RARE * self._passages)
        named = {term: self._held_by[term] or self._held_by[INNER + term] for term in terms(rest)}
        return all(
            term in _NOTHING_NAMED or held > most or (not held and _UNSPACED.match(term))
            for term, held in named.items()
        )

    def speaks(self, question: str) -> bool:
        """Return whether a question is in the language of the text.

        It is not if it has several words and the text has none of them, or if most of its small words are of another
        language. A text has few words of an answer in another language, whether it is right or not.
        """
        asked = set(terms(question))
        if len(asked) > 1 and asked.isdisjoint(self._held_by) and not self.known(question):
            return False
        said = [sum(self._held_by[term] for term in own) for own in _BY_LANGUAGE]
        shared = [len(asked & own) for own in _BY_LANGUAGE]
        return shared[said.index(max(said))] == max(shared)

    def rarity(self, term: str) -> float:
        """Return how much a term tells passages apart, as BM25 weighs it: most if the text does not have it."""
        holding = self._held_by[term]
        return math.log(1 + (self._passages - holding + 0.5) / (holding + 0.5))

    def known(self, question: str) -> list[str]:
        """Return each telling term of a question that the text has, as a word or inside one."""
        asked = ((term, INNER + term) for term in dict.fromkeys(terms(question)) if term not in ASKING)
        return [known for each in asked if (known := next((one for one in each if one in self._held_by), None))]
