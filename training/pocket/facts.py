"""Synthetic facts: a subject, a relation, a value, one wording, and the questions it answers."""

# ruff: noqa: E501 - the tables read best with a phrase unbroken

import functools
import random
import re
from dataclasses import dataclass, field, replace

from training.pocket import relations, values, verbs, words
from training.pocket.relations import Relation

# synonymous relations; a subject gets at most one of a group
_SAME = {
    "birthplace": "birthplace", "owner": "belongs", "director": "headed", "chairman": "headed", "president": "headed",
    "headquarters": "based", "head office": "based", "captain": "sails", "destination": "travelled", "price": "itemcosts",
    "value": "itemcosts", "cost": "costs", "budget": "costs", "leader": "led", "deadline": "ends", "age": "agecount",
    "population": "people", "year of foundation": "founded", "founding year": "began", "number of employees": "employs",
    "husband": "spouse", "wife": "spouse", "salary": "earns", "debt": "owes", "phone number": "phone", "badge number": "badge",
    "room number": "room", "year of birth": "bornyear", "date of arrival": "arrives", "weight": "weighs", "colour": "painted",
    "material": "madeof", "maker": "made", "contents": "holds", "combination": "opens", "lock number": "opens",
    "location": "stored", "cargo": "carries", "year of launch": "launched", "favourite food": "eats", "trainer": "tended",
    "instrument": "plays", "pet": "keeps", "coat colour": "wears", "native country": "camefrom", "home town": "camefrom",
    "main product": "makes", "access code": "unlocks", "place of work": "employer", "teacher": "taughtby", "tutor": "taughtby",
    "rider": "tended", "stable": "lives", "breed": "breed", "previous owner": "belongs", "designer": "made", "favourite dish": "likes",
    "favourite subject": "studies", "thesis topic": "studies", "hobby": "enjoys", "river": "river", "famous product": "known",
}  # fmt: skip

_PASSKEY_STATEMENTS = (
    "the pass key is {v}. Remember it. {v} is the pass key.", "the pass key is {v}. Remember it.", "the pass key is {v}.",
    "remember the pass key: {v}.", "there is a pass key, and it is {v}.", "{v} is the pass key. Do not forget it.",
    "here is the pass key: {v}. Keep it in mind.", "note that the pass key is {v}.", "the secret pass key is {v}.",
)  # fmt: skip
_PASSKEY_QUESTIONS = (
    "What is the pass key?", "What is the pass key? The pass key is", "Tell me the pass key.", "Which pass key was given in the text?", "What was the pass key?",
    "What is the pass key in the text?", "Do you remember the pass key?", "The pass key?", "Please give the pass key.", "Repeat the pass key.",
)  # fmt: skip
_NUMBERED_STATEMENTS = (
    "{s} is {v}.", "{s} is {v}. Remember it.", "{v} is {s}.", "remember {s}: {v}.", "as {s} they gave {v}.", "{s} was {v}.", "there is {s}, and it is {v}.",
)  # fmt: skip
_NUMBERED_QUESTIONS = (
    "What is {s}?",
    "Tell me {s}.",
    "What was {s}?",
    "{s}?",
    "Do you remember {s}?",
    "Repeat {s}.",
    "Please give {s}.",
)
_BOTH_PASSKEYS = (
    "What are the first and the second pass key?", "Give the first and the second pass key.", "Name both pass keys in order.", "What are the two pass keys?",
    "Tell me the two pass keys.", "Which pass keys are given, in order?", "The first and the second pass key?", "Repeat both pass keys.",
)  # fmt: skip
_TWO_ATTRIBUTES = (
    "What are the {a} and the {b} of {s}?", "Give {s}'s {a} and {b}.", "Tell me the {a} and the {b} of {s}.", "What is {s}'s {a}, and what is {p} {b}?",
    "What is the {a} of {s} and the {b}?", "{s}: {a} and {b}?",
)  # fmt: skip
_TWO_SUBJECTS = (
    "What is the {a} of {s} and that of {t}?", "Give the {a} of {s} and of {t}.", "Tell me {s}'s {a} and {t}'s {a}.", "What are {s}'s and {t}'s {a}?",
    "The {a} of {s} and of {t}?", "What is {s}'s {a}, and what is {t}'s?",
)  # fmt: skip
_PAIR_STATEMENTS = (
    '"{s}": "{v}".', "key {s} has the value {v}.", "the value of {s} is {v}.", "{s} = {v}.", "{s} maps to {v}.", "{s}: {v}.",
    "the entry for {s} is {v}.", "under {s} we find {v}.",
)  # fmt: skip
_PAIR_QUESTIONS = (
    "What is the value of {s}?", 'What is the value of "{s}"?', "Which value belongs to the key {s}?", "{s}?", "Look up {s}.",
    "What is stored under {s}?", "What does {s} map to?", "Give the value for key {s}.", "What is the entry for {s}?",
)  # fmt: skip
_OPENINGS = (
    "According to the register, ", "It was known that ", "By the way, ", "In the letter one reads that ", "As it happened, ",
    "They said that ", "He remembered that ", "She noted that ", "Later it was found that ", "Strange to say, ", "Note that ",
    "It must be added that ", "In fact, ", "That year ", "One should know that ", "For the record, ", "People say that ",
    "It turned out that ", "To be exact, ", "Among other things, ", "The clerk wrote that ", "I heard that ", "Back then, ",
    "From the same source we learn that ", "The report states that ", "On the second page it says that ", "Officially, ",
    "Nobody knew why, but ", "First of all, ", "However, ", "Besides, ", "A note adds that ", "It is true that ", "Of course ",
)  # fmt: skip
_CLOSINGS = (
    ", as everybody knows.", ", so they say.", ", or so I was told.", ", if the records are right.", ", which surprised nobody.",
    ", and that settled the matter.", " - so much is certain.", ", he added.", ", said the clerk.", ", as the papers show.",
    " (see the register).", ", whatever people may say.", ", I believe.", "; nobody asked why.", ", at least on paper.", "!",
)  # fmt: skip
_LEADS = (
    "Please tell me: ", "Excuse me, ", "A short question: ", "By the way, ", "One more thing: ", "So, ", "Now, ", "I forgot: ",
    "Sorry, ", "To be sure: ", "Next question: ", "Well, ", "Hello. ", "Thank you. ",
)  # fmt: skip
_TAILS = (
    ", please?", ", according to the text?", " exactly?", "? Answer in a few words.", ", do you know?", "? I cannot find it.", "? Thanks.",
)  # fmt: skip

_IT = {"p": "its", "they": "it", "them": "it", "was": "was", "is": "is", "es": "es"}


@dataclass(frozen=True)
class Subject:
    """The subject of facts. `forms` fills {p}, {they}, {them}, {was}, {is}, {es} in follow-ups."""

    kind: str
    name: str
    forms: dict[str, str] = field(hash=False, compare=False)


@dataclass(frozen=True)
class Fact:
    """One stated fact.

    Attributes:
        subject, relation: the topic of the fact.
        value: the answer, word for word as in `statement`.
        statement: one sentence (a pass key: up to three), capitalised, ending in a full stop.
    """

    subject: Subject
    relation: Relation
    value: str
    statement: str

    def spans(self) -> list[tuple[int, int]]:
        """Return character spans of the value in the statement, ignoring case as a value may begin the sentence."""
        return [m.span() for m in re.finditer(re.escape(self.value), self.statement, re.IGNORECASE)]


def capital(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def make_subject(rng: random.Random, reserved: bool, like: Subject | None = None, kind: str = "") -> Subject:
    """Return a new subject, of `kind` if given; with `like`, a distractor that shares part of its name."""
    kinds = ("person", "place", "company", "ship", "project", "item", "animal")
    kind = like.kind if like else kind or rng.choices(kinds, (48, 10, 8, 7, 9, 12, 6))[0]
    if kind == "person":
        forms = dict(
            rng.choice(
                (
                    {"p": "his", "they": "he", "them": "him", "was": "was", "is": "is", "es": "es"},
                    {"p": "her", "they": "she", "them": "her", "was": "was", "is": "is", "es": "es"},
                    {"p": "their", "they": "they", "them": "them", "was": "were", "is": "are", "es": ""},
                )
            )
        )
        name = words.person(rng, reserved)
        if like and " " in like.name:
            first, last = like.name.rsplit(" ", 1)
            name = (
                f"{first} {words.last_name(rng, reserved)}"
                if rng.random() < 0.5
                else f"{words.first_name(rng, reserved)} {last}"
            )
        return Subject(kind, name, forms)
    if kind == "place":
        return Subject(kind, words.place(rng, reserved), _IT)
    if kind == "company":
        return Subject(kind, words.company(rng, reserved), _IT)
    if kind == "item":
        noun = like.name.rsplit(" ", 1)[1] if like else rng.choice(words.THINGS)
        adjective = rng.choice(words.ADJECTIVES)
        if rng.random() < 0.25 and not like:
            return Subject(kind, f"{noun} {rng.randint(2, 999)}", _IT)
        return Subject(kind, f"the {adjective} {noun}", _IT)
    name = words.invented(rng, reserved)
    if kind == "ship":
        return Subject(kind, rng.choice((f"the {name}", f"the ship {name}", f"the schooner {name}")), _IT)
    if kind == "project":
        return Subject(kind, rng.choice((f"Project {name}", f"Operation {name}", f"the {name} project", name)), _IT)
    return Subject(kind, rng.choice((name, f"the {rng.choice(words.ANIMALS)} {name}")), _IT)


class NothingLeft(ValueError):
    """Every relation of a subject is taken."""


class FactMaker:
    """Draws relations and facts; holds the tables of one share (training or unseen).

    Args:
        nouns: extra attribute nouns (from the books), each usable with any subject and any value.
        held_out: use the held-out relations instead of the training ones.
        unseen_wording: composed relations only, in the wordings kept from training.
    """

    def __init__(self, nouns: list[str], held_out: bool = False, unseen_wording: bool = False) -> None:
        self.held_out, self.unseen_wording = held_out, unseen_wording
        banned = {noun.split()[-1] for _, noun, _ in relations.attributes(True)}
        self.nouns = [n for n in nouns if n not in banned]
        self.attributes: dict[str, list[tuple[str, str]]] = {}
        for subject, noun, kind in relations.attributes(held_out):
            self.attributes.setdefault(subject, []).append((noun, kind))
        self.verbs: dict[str, list[Relation]] = {}
        for relation in verbs.HELD_OUT_VERBS if held_out else verbs.VERBS:
            self.verbs.setdefault(relation.subject, []).append(relation)

    def relation(self, rng: random.Random, kind: str, taken: set[str]) -> Relation:
        """Return a relation for a subject of `kind` whose group (synonymous relations) is not in `taken`.

        Raises:
            NothingLeft: fifty draws found none.
        """
        for _ in range(50):
            shape = rng.random()
            if shape < 0.4 and kind in self.verbs and not self.unseen_wording:
                relation = rng.choice(self.verbs[kind])
            elif shape < 0.55 and self.nouns and not self.held_out:
                value = rng.choice(values.KINDS)
                value = value if value != "uuid" else "name"
                relation = relations.composed(kind, rng.choice(self.nouns), value, self.unseen_wording)
            elif kind in self.attributes:
                relation = relations.composed(kind, *rng.choice(self.attributes[kind]), self.unseen_wording)
            else:
                continue
            if group(relation) not in taken:
                return relation
        raise NothingLeft(f"no relation left for a subject of kind {kind!r} beside {sorted(taken)}")

    def fact(self, rng: random.Random, subject: Subject, relation: Relation, reserved: bool) -> Fact:
        """Return a fact with a new value and a random wording."""
        for _ in range(20):
            value = values.draw(relation.value, rng, reserved)
            if value not in subject.name and subject.name not in value:
                break
        text = _fill(rng.choice(relation.statements), relation, subject, value)
        shape = rng.random()
        if shape < 0.16 and not text.startswith(('"', value)):
            text = rng.choice(_OPENINGS) + text
        elif shape > 0.92 and text.endswith("."):
            text = text[:-1] + rng.choice(_CLOSINGS)
        return Fact(subject, relation, value, capital(text))


def group(relation: Relation) -> str:
    """Return the common name of synonymous relations."""
    return _SAME.get(relation.key, relation.key)


def backward(relation: Relation) -> Relation:
    """Return the relation with only its wordings that give the value first; unchanged if it has none."""
    return replace(relation, statements=_value_first(relation.statements) or relation.statements)


@functools.cache
def _value_first(statements: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text for text in statements if text.index("{v}") < text.index("{s}"))


def _fill(template: str, relation: Relation, subject: Subject, value: str = "") -> str:
    text = template.replace("{a}", relation.key).replace("{s}", subject.name).replace("{v}", value)
    for name, form in subject.forms.items():
        text = text.replace("{" + name + "}", form)
    return text


def question(rng: random.Random, relation: Relation, subject: Subject) -> str:
    """Return a question for the value of `relation` of `subject`."""
    return _asked(rng, rng.choice(relation.questions), relation, subject)


def followup(rng: random.Random, relation: Relation, subject: Subject) -> str:
    """Return the same question with pronouns, for a subject that was just mentioned."""
    return _asked(rng, rng.choice(relation.followups), relation, subject)


def _asked(rng: random.Random, template: str, relation: Relation, subject: Subject) -> str:
    """Return the question as people type it: mostly unchanged, sometimes politer, longer or more careless."""
    text, shape = _fill(template, relation, subject), rng.random()
    plain = capital(text) if template.startswith("{s}") else text[:1].lower() + text[1:]  # a name keeps its capital
    if shape < 0.1:
        lead = rng.choice(_LEADS)
        return lead + (capital(text) if lead.endswith(". ") else plain)
    if shape < 0.15 and text.endswith("?"):
        return capital(text)[:-1] + rng.choice(_TAILS)
    if shape < 0.2:
        return (plain if shape < 0.18 else capital(text)).rstrip("?.")
    return capital(text)


def passkey(rng: random.Random) -> Fact:
    """Return a pass key of five (rarely four to eight) digits."""
    subject = Subject("passkey", "the pass key", _IT)
    relation = Relation(
        "passkey", "passkey", "passkey", _PASSKEY_STATEMENTS, _PASSKEY_QUESTIONS, ("And the pass key?",)
    )
    value = words.digits(rng, 5, 5) if rng.random() < 0.75 else words.digits(rng, 4, 8)
    return Fact(subject, relation, value, capital(rng.choice(_PASSKEY_STATEMENTS).replace("{v}", value)))


def passkeys(rng: random.Random) -> list[Fact]:
    """Return a first and a second pass key."""
    found = []
    for number in ("first", "second"):
        subject = Subject("passkey", f"the {number} pass key", _IT)
        key = f"{number} pass key"
        relation = Relation(key, "passkey", "passkey", _NUMBERED_STATEMENTS, _NUMBERED_QUESTIONS, _NUMBERED_QUESTIONS)
        value = words.digits(rng, 5, 5)
        statement = _fill(rng.choice(_NUMBERED_STATEMENTS), relation, subject, value)
        found.append(Fact(subject, relation, value, capital(statement)))
    return found


def both(rng: random.Random, one: Fact, other: Fact) -> str:
    """Return a question for the values of both facts, in this order; "" if there is none."""
    if (one.relation.key, other.relation.key) == ("first pass key", "second pass key"):
        return rng.choice(_BOTH_PASSKEYS)
    if not (one.relation.is_attribute and other.relation.is_attribute):
        return ""
    if one.subject == other.subject:
        text = _fill(rng.choice(_TWO_ATTRIBUTES), one.relation, one.subject).replace("{b}", other.relation.key)
    elif one.relation.key == other.relation.key:
        text = _fill(rng.choice(_TWO_SUBJECTS), one.relation, one.subject).replace("{t}", other.subject.name)
    else:
        return ""
    return capital(text)


def pairs(rng: random.Random, count: int) -> list[Fact]:
    """Return keys with values; half of the time the keys differ only in their last two to four digits."""
    if rng.random() < 0.5:
        return [pair(rng) for _ in range(count)]
    alike, last = f"{rng.randrange(0x1000, 0x1000000):x}", rng.randint(2, 4)
    keys = rng.sample(range(16**last), count)
    return [pair(rng, f"{alike}{key:0{last}x}") for key in keys]


def pair(rng: random.Random, key: str = "") -> Fact:
    """Return a key and its value, both random codes (one pair in ten: two UUIDs); `key` sets the key."""
    shape = rng.random()
    kind = "uuid" if shape < 0.1 and not key else "hex" if shape < 0.45 else "code"
    key = key or values.draw(kind, rng, False)
    value = values.draw(kind if rng.random() < 0.7 else "number", rng, False)
    subject = Subject("pair", key, _IT)
    relation = Relation("pair", "pair", kind, _PAIR_STATEMENTS, _PAIR_QUESTIONS, ("And its value?",))
    return Fact(subject, relation, value, _fill(rng.choice(_PAIR_STATEMENTS), relation, subject, value))
