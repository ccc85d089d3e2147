"""Families of questions about statements made from a seed.

Statements are sentences with a leading space, for use after a full stop in any prose. People, villages and rivers have
invented names that are neither in the prose nor in the pocket model's training.
"""

from __future__ import annotations

import itertools
import random
import string
from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.suite.links import LINKS
from benchmarks.suite.tasks import LIST, Asked, Needles
from training.pocket.words import ADJECTIVES, THINGS, is_reserved, phrases, syllables

SINGLES = 4
KEYS, KEYS_ASKED, VALUES = 4, 3, 4
CHAIN = 4  # variables with one value
ORDER = 5  # nearly identical sentences
HELD = 3  # owners, with their things, villages and rivers, in `hops`
LISTED, OTHERS = 5, 3  # people to list, and people at the other event
DECOYS = 2  # people with other traits
FEWEST_COUNTED, MOST_COUNTED = 3, 5
IN_WORDS = {3: "three", 4: "four", 5: "five"}
FEWEST_LETTERS = 5

Drawn = TypeVar("Drawn")

CITIES = phrases(
    "Lisbon| Vienna| Cairo| Oslo| Lima| Prague| Athens| Dublin| Havana| Nairobi| Warsaw| Madrid| Quito| Seoul| Tunis| "
    "Manila| Bogota| Helsinki| Geneva"
)
EVENTS = phrases(
    "harvest supper| spring concert| winter ball| chess tournament| boat race| flower show| bridge opening| school play"
)


class Names:
    """Draws names and numbers that occur nowhere else in a text."""

    def __init__(self, rng: random.Random, prose: str) -> None:
        """Avoid names and numbers in `prose`, the rest of the text."""
        self.rng, self.prose = rng, prose.lower()
        self.used: set[str] = set()
        self.drawn: list[object] = []

    def name(self) -> str:
        """Return an invented name that neither contains nor repeats another one."""
        while True:
            name = syllables(self.rng, 2)
            if len(name) >= FEWEST_LETTERS and is_reserved(name.capitalize()) and self._free(name):
                return name.capitalize()

    def number(self, digits: int = 6) -> str:
        """Return a number that occurs once."""
        while True:
            number = str(self.rng.randrange(10 ** (digits - 1), 10**digits))
            if self._free(number):
                return number

    def variable(self) -> str:
        """Return a name such as XQFTR."""
        while True:
            letters = "".join(self.rng.choices(string.ascii_uppercase, k=5))
            if self._free(letters.lower()):
                return letters

    def thing(self) -> str:
        """Return "adjective thing", used by one family of needles only; the prose may contain it."""
        while True:
            thing = f"{self.rng.choice(ADJECTIVES)} {self.rng.choice(THINGS)}"
            if thing not in self.used:
                self.used.add(thing)
                return thing

    def draw(self, pool: Sequence[Drawn], count: int) -> list[Drawn]:
        """Return `count` members of a pool that were not drawn before: twice in a text, a question has two answers."""
        chosen = self.rng.sample([each for each in pool if each not in self.drawn], count)
        self.drawn += chosen
        return chosen

    def pick(self, pool: Sequence[Drawn]) -> Drawn:
        """Return a member that was not drawn for this text before. pool: more members than a text has sets."""
        while (chosen := self.rng.choice(pool)) in self.drawn:
            pass
        self.drawn.append(chosen)
        return chosen

    def _free(self, text: str) -> bool:
        if text in self.prose or any(text in other or other in text for other in self.used):
            return False
        self.used.add(text)
        return True


def single(names: Names) -> Needles:
    """Return statements about different things, each with a question of its own."""
    pairs = [(names.thing(), names.number()) for _ in range(SINGLES)]
    needles = [f" The reference number of the {thing} is {number}." for thing, number in pairs]
    asked = [
        Asked("single", f"What is the reference number of the {thing}?", (number,), (needle,))
        for (thing, number), needle in zip(pairs, needles, strict=True)
    ]
    return Needles(needles, asked)


def keys(names: Names) -> Needles:
    """Return statements that differ in key and value; some of the keys are asked about."""
    pairs = [(names.number(4), names.number()) for _ in range(KEYS)]
    needles = [f" The access code of locker {key} is {value}." for key, value in pairs]
    asked = [
        Asked("keys", f"What is the access code of locker {pairs[at][0]}?", (pairs[at][1],), (needles[at],))
        for at in names.rng.sample(range(KEYS), KEYS_ASKED)
    ]
    return Needles(needles, asked)


def values(names: Names) -> Needles:
    """Return several values of one key; all are asked for."""
    person, numbers = names.name(), tuple(names.number() for _ in range(VALUES))
    needles = [f" One of the ticket numbers of {person} is {number}." for number in numbers]
    question = f"What are the {VALUES} ticket numbers of {person} in the text?"
    return Needles(needles, [Asked("values", question, numbers, tuple(needles), most=LIST)])


def variables(names: Names) -> Needles:
    """Return two chains of assignments; all variables with the value of one chain are asked for."""
    chains: list[tuple[str, list[str], list[str]]] = []
    for _ in range(2):
        value, held = names.number(5), [names.variable() for _ in range(CHAIN)]
        said = [f" VAR {held[0]} = {value}."]
        said += [f" VAR {later} = VAR {earlier}." for earlier, later in itertools.pairwise(held)]
        chains.append((value, held, said))
    value, held, said = names.rng.choice(chains)
    mixed = interleaved(names.rng, [chain[2] for chain in chains])
    question = f"Which {CHAIN} variables have the value {value}, directly or through other variables? Name all of them."
    return Needles(mixed, [Asked("variables", question, tuple(held), tuple(said), most=LIST)])


def order(names: Names) -> Needles:
    """Return nearly identical sentences; the k-th is asked for."""
    person, cities = names.name(), names.rng.sample(CITIES, ORDER)
    needles = [f" A postcard arrived from {person}, who was now in {city}." for city in cities]
    at = names.rng.randrange(1, ORDER - 1)
    place = ("first", "second", "third", "fourth", "fifth")[at]
    question = f"In the order of the text, from which city did the {place} postcard of {person} arrive?"
    return Needles(needles, [Asked("order", question, (cities[at],), tuple(needles[: at + 1]))])


def unspoken(names: Names) -> Needles:
    """Return a trait stated without words of the question; two other people have other traits."""
    people = [names.name() for _ in range(DECOYS + 1)]
    links = names.draw(LINKS, DECOYS + 1)
    needles = [f" {link.told.format(person)}" for person, link in zip(people, links, strict=True)]
    asked = Asked("unspoken", links[0].asked, (people[0],), (needles[0],))
    return Needles(_shuffled(names.rng, needles), [asked])


def hops(names: Names) -> Needles:
    """Return owners of things, their villages and rivers: one question of two hops and one of three."""
    worlds = [(names.thing(), names.name(), names.name(), names.name()) for _ in range(HELD)]
    said = [
        (
            f" The {thing} belongs to {person}.",
            f" {person} lives in the village of {village}.",
            f" The village of {village} lies on the river {river}.",
        )
        for thing, person, village, river in worlds
    ]
    (thing, _, village, _), (far, _, _, river) = worlds[:2]
    two = f"In which village does the owner of the {thing} live?"
    three = f"On which river lies the village in which the owner of the {far} lives?"
    return Needles(
        _shuffled(names.rng, [statement for each in said for statement in each]),
        [Asked("two-hops", two, (village,), said[0][:2]), Asked("three-hops", three, (river,), said[1])],
    )


def listed(names: Names) -> Needles:
    """Return guests of two events; all guests of one event are asked for."""
    event, other = names.draw(EVENTS, 2)
    guests, others = ([names.name() for _ in range(count)] for count in (LISTED, OTHERS))
    needles = [f" A guest at the {event} was {guest}." for guest in guests]
    rest = [f" A guest at the {other} was {guest}." for guest in others]
    question = f"List all {LISTED} guests at the {event}, separated by commas."
    asked = Asked("list", question, tuple(guests), tuple(needles), most=LIST)
    return Needles(interleaved(names.rng, [needles, rest]), [asked])


def updated(names: Names) -> Needles:
    """Return a number that is changed later; the number that holds now is asked for."""
    person, old, new = names.name(), names.number(), names.number()
    needles = [f" The badge number of {person} was {old}.", f" Since spring the badge number of {person} is {new}."]
    question = f"What is the badge number of {person} now?"
    return Needles(needles, [Asked("updated", question, (new,), (needles[1],))])


def absent(names: Names) -> Needles:
    """Return facts about some people; the same is asked about another one, of whom the text does not tell it."""
    person, *others = (names.name() for _ in range(DECOYS + 1))
    needles = [f" The passport of {other} has the number {names.number()}." for other in others]
    needles.append(f" {person} carried a passport too.")
    question = f"What is the number of the passport of {person}?"
    return Needles(_shuffled(names.rng, needles), [Asked("absent", question, (), ())])


def counts(names: Names) -> Needles:
    """Return several sentences of one kind; how many there are is asked for."""
    person, count = names.name(), names.rng.randrange(FEWEST_COUNTED, MOST_COUNTED + 1)
    needles = [f" {person} sold a boat to {names.name()}." for _ in range(count)]
    question = f"How many boats did {person} sell?"
    return Needles(needles, [Asked("counts", question, (str(count), IN_WORDS[count]), tuple(needles), any_of=True)])


MAKERS: tuple[Callable[[Names], Needles], ...] = (
    single,
    keys,
    values,
    variables,
    order,
    unspoken,
    hops,
    listed,
    updated,
    absent,
    counts,
)


def _shuffled(rng: random.Random, statements: list[str]) -> list[str]:
    return rng.sample(statements, len(statements))


def interleaved(rng: random.Random, lists: Sequence[Sequence[str]]) -> list[str]:
    """Merge lists at random, keeping the order within each."""
    turns = [number for number, each in enumerate(lists) for _ in each]
    rng.shuffle(turns)
    left = [iter(each) for each in lists]
    return [next(left[number]) for number in turns]
