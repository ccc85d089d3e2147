"""Values of facts, by kind. `draw(kind, rng, reserved)` is the only entry point; `KINDS` lists the kinds."""

import random
from collections.abc import Callable

from training.pocket import words

Draw = Callable[[random.Random], str]


def _number(rng: random.Random) -> str:
    return words.digits(rng, 1, 6)


def _count(rng: random.Random) -> str:
    return str(rng.randint(2, 999))


def _year(rng: random.Random) -> str:
    return str(rng.randint(1400, 2060))


def _date(rng: random.Random) -> str:
    day, month = rng.randint(1, 28), rng.choice(words.MONTHS)
    shape = rng.random()
    if shape < 0.5:
        return f"{day} {month} {_year(rng)}"
    if shape < 0.8:
        return f"{month} {day}"
    return f"{month} {day}, {_year(rng)}"


def _time(rng: random.Random) -> str:
    hour, minute = rng.randint(1, 12), rng.choice((0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55))
    return f"{hour}:{minute:02d}" if rng.random() < 0.7 else f"{hour} o'clock"


def _money(rng: random.Random) -> str:
    return f"{rng.randint(2, 99999)} {rng.choice(words.CURRENCIES)}"


def _measure(rng: random.Random) -> str:
    return f"{rng.randint(2, 9999)} {rng.choice(words.UNITS)}"


def _phone(rng: random.Random) -> str:
    return f"{rng.randint(100, 999)}-{rng.randint(1000, 9999)}"


def _one(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _object(rng: random.Random) -> str:
    thing = rng.choice(words.OBJECTS)
    thing = f"{rng.choice(words.ADJECTIVES[:26])} {thing}" if rng.random() < 0.4 and " " not in thing else thing
    return _one(thing)


def _animal(rng: random.Random) -> str:
    animal = rng.choice(words.ANIMALS)
    animal = f"{rng.choice(words.COLOURS)} {animal}" if rng.random() < 0.4 else animal
    return _one(animal)


def _profession(rng: random.Random) -> str:
    return _one(rng.choice(words.PROFESSIONS))


def _thing(rng: random.Random) -> str:
    return f"the {rng.choice(words.ADJECTIVES)} {rng.choice(words.THINGS)}"


def _choice(options: list[str]) -> Draw:
    return lambda rng: rng.choice(options)


_NAMES: dict[str, Callable[[random.Random, bool], str]] = {
    "person": words.person,
    "place": words.place,
    "company": words.company,
    "name": lambda rng, reserved: words.invented(rng, reserved, 1, 3),
}
_OTHERS: dict[str, Draw] = {
    "number": _number,
    "count": _count,
    "year": _year,
    "date": _date,
    "time": _time,
    "money": _money,
    "measure": _measure,
    "phone": _phone,
    "passkey": lambda rng: words.digits(rng, 5, 5),
    "code": words.code,
    "hex": lambda rng: words.hexadecimal(rng, (8,)),
    "uuid": lambda rng: words.hexadecimal(rng, (8, 4, 4, 4, 12)),
    "object": _object,
    "animal": _animal,
    "profession": _profession,
    "thing": _thing,
    "colour": _choice(words.COLOURS),
    "food": _choice(words.FOODS),
    "material": _choice(words.MATERIALS),
    "instrument": _choice(words.INSTRUMENTS),
    "subject": _choice(words.SUBJECTS),
    "hobby": _choice(words.HOBBIES),
    "weekday": _choice(words.WEEKDAYS),
    "month": _choice(words.MONTHS),
}
KINDS = (*_NAMES, *_OTHERS)


def draw(kind: str, rng: random.Random, reserved: bool) -> str:
    """Return a value of `kind`; names in it are reserved ones if `reserved` is set.

    Raises:
        KeyError: unknown kind.
    """
    return _NAMES[kind](rng, reserved) if kind in _NAMES else _OTHERS[kind](rng)
