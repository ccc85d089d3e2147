"""Ids such as "d-7k3m9q": a letter for the kind of item, and six characters."""

import re
import secrets

from sessions.errors import NotFound

LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"  # without letters that look alike
NOUNS = {"d": "document", "c": "context", "s": "session", "t": "turn", "j": "job"}
ID = re.compile(f"[{''.join(NOUNS)}]-[{LETTERS}]{{6}}")
TABLES = {kind: f"{kind}s" for kind in NOUNS.values()}


def kind_of(id: str) -> str:
    """Return the kind ("document", "context", ...) that an id stands for, from its prefix.

    Raises:
        NotFound: the text is not an id. Paths are made from ids only after this check.
    """
    if not isinstance(id, str) or not ID.fullmatch(id):  # a damaged database has no text there
        examples = ", ".join(f"{letter}-... ({noun})" for letter, noun in NOUNS.items())
        raise NotFound(f"{id!r} is not an id; ids look like {examples}. List what there is to see them.")
    return NOUNS[id[0]]


def random_id(kind: str) -> str:
    """Return a random id of this kind, which may be taken."""
    prefix = next(letter for letter, noun in NOUNS.items() if noun == kind)
    return f"{prefix}-" + "".join(secrets.choice(LETTERS) for _ in range(6))
