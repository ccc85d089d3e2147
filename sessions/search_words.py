"""Words for the search indexes: letters of scripts without blanks, and long words that contain others."""

import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from sqlite_utils import Database

PART, LONG = 3, 6
"""Fewest letters of a word that is searched for inside others, and of those others."""
MOST_WORDS = 200
"""Most words that are searched for because they contain another; the shortest come first."""
# Thai, Lao, Tibetan, Burmese, Khmer, Hangul, Kana, Bopomofo and Han: a run of their letters is no single word.
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u318f\u31a0-\u31ff\u3400-"
    "\u4dbf\u4e00-\u9fff\ua960-\ua97f\ua9e0-\ua9ff\uaa60-\uaa7f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U00016fe0-\U00018fff\U0001b000-\U0001b2ff\U00020000-\U0003ffff]"
)
_GAP = "\uffff"  # a noncharacter that parts words for the tokenizer
_WORD = re.compile(r"[^\W_]+")
_ACCENTS = re.compile("(?<=[a-z])[\u0300-\u036f]+")  # those that the tokenizer drops
_TOKENIZER = "unicode61 remove_diacritics 2 categories 'L* M* N* Co'"


def spaced(text: str) -> str:
    """Return text with a gap around each letter of a script without blanks, so that each is a word of the index."""
    return text if text.isascii() else _UNSPACED.sub(rf"{_GAP}\g<0>{_GAP}", text)


def unspaced(text: str) -> str:
    """Return text without the gaps of `spaced`."""
    return text.replace(_GAP, "")


def know_spacing(connection: sqlite3.Connection) -> None:
    """Register the SQL function that search indexes and their triggers call on a connection."""
    connection.create_function(
        "spaced", 1, lambda data: spaced((data or b"").decode(errors="replace")), deterministic=True
    )


def index_words(db: Database, table: str, columns: Sequence[str]) -> None:
    """Create a search index of columns of a table with the key `key`, and the triggers that keep it up to date.

    The index holds no text: it reads the table through a view, which spaces it as it was indexed.
    """
    know_spacing(db.conn)
    index, view, names = f"{table}_fts", f"{table}_spaced", ", ".join(columns)

    def spaced_of(row: str) -> str:
        return ", ".join(f"spaced(CAST({row}{column} AS BLOB)) AS {column}" for column in columns)

    db.execute(f"CREATE VIEW {view} AS SELECT key, {spaced_of('')} FROM {table}")
    options = f'content = {view}, content_rowid = key, tokenize = "{_TOKENIZER}"'
    db.execute(f"CREATE VIRTUAL TABLE {index} USING fts5({names}, {options})")
    add = f"INSERT INTO {index} (rowid, {names}) SELECT new.key, {spaced_of('new.')};"
    remove = f"INSERT INTO {index} ({index}, rowid, {names}) SELECT 'delete', old.key, {spaced_of('old.')};"
    for name, event, work in (
        ("ai", "INSERT", add),
        ("ad", "DELETE", remove),
        ("au", f"UPDATE OF {names}", remove + add),
    ):
        db.execute(f"CREATE TRIGGER {table}_{name} AFTER {event} ON {table} BEGIN {work} END")
    db.execute(f"INSERT INTO {index}({index}) VALUES ('rebuild')")


def long_words(texts: Iterable[str]) -> str:
    """Return the different words of texts that may contain others, one a line."""
    return "\n".join(sorted({word.lower() for text in texts for word in _long(text)}))


def searched_part(word: str) -> str:
    """Return a word as it is looked for inside others, without accents and case; "" if it is not looked for there."""
    folded = _folded(word)
    return folded if len(folded) >= PART and _WORD.fullmatch(folded) and not _UNSPACED.search(folded) else ""


def words_with(part: str, texts: Iterable[str]) -> list[str]:
    """Return the words of texts that contain a part, the shortest first; accents and case do not matter."""
    folded = searched_part(part)
    if not folded:
        return []
    among = (word.lower() for text in texts if folded in _folded(text) for word in _long(text))
    return sorted({word for word in among if folded in _folded(word)}, key=lambda word: (len(word), word))[:MOST_WORDS]


def _long(text: str) -> Iterator[str]:
    return (word for word in _WORD.findall(text) if len(word) >= LONG and not _UNSPACED.search(word))


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text.lower()))).replace("ς", "σ")
