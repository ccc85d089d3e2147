"""Relations of a subject: attributes (a noun in general wordings) and verbs (with wordings of their own).

`HELD_OUT_ATTRIBUTES` and `verbs.HELD_OUT_VERBS` never appear in training; they measure unseen relations.
"""

# ruff: noqa: E501 - the tables read best with a phrase unbroken

from dataclasses import dataclass

from training.pocket import wordings


@dataclass(frozen=True)
class Relation:
    """One relation: subject kind, value kind and wordings.

    Attributes:
        key: unique name, for an attribute its noun. Two facts with the same subject and key would contradict each
            other.
        subject: kind of subject ("person", "place", ...).
        value: kind of value, as in `values.KINDS`.
        statements: wordings with {s} and {v}, for an attribute also {a}; see `wordings`.
        questions: wordings with {s}.
        followups: questions after another question about the same subject, with {p} or {they} for it.
    """

    key: str
    subject: str
    value: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    followups: tuple[str, ...]

    @property
    def is_attribute(self) -> bool:
        """True if the key is a noun for the general wordings."""
        return "{a}" in self.questions[0]


# noun:value kind; one line per subject kind
_ATTRIBUTES = {
    "person": """birthplace:place, home town:place, employer:company, profession:profession, hobby:hobby, favourite colour:colour,
        favourite dish:food, favourite fruit:food, favourite animal:animal, instrument:instrument, pet:animal, middle name:name,
        nickname:name, maiden name:name, husband:person, wife:person, brother:person, sister:person, uncle:person, aunt:person,
        teacher:person, lawyer:person, doctor:person, neighbour:person, landlord:person, rival:person, partner:person,
        cousin:person, mentor:person, godfather:person, tailor:person, banker:person, assistant:person, secretary:person,
        best friend:person, mother:person, father:person, daughter:person, son:person, grandfather:person, nephew:person,
        age:count, height:measure, weight:measure, shoe size:count, salary:money, rent:money, debt:money, fortune:money,
        phone number:phone, room number:number, house number:number, licence number:code, account number:number,
        badge number:number, passport number:code, locker code:code, birthday:date, wedding day:date, date of arrival:date,
        year of birth:year, place of work:company, school:company, club:company, bank:company, native country:place,
        destination:place, summer residence:place, hiding place:thing, favourite subject:subject, eye colour:colour,
        coat colour:colour, lucky number:count, user name:name, password:code, seat:code, ticket number:number, religion:name,
        most valuable possession:object, first gift:object, prize:object, weapon:object, day off:weekday, bedtime:time,
        blood type:code, membership number:number, tax number:number, chief suspect:person, butler:person, driver:person,
        apprentice:person, stepfather:person, tutor:person, boss:person, publisher:company, regiment:company, thesis topic:subject""",
    "place": """population:number, mayor:person, founder:person, river:name, main export:food, patron saint:person, elevation:measure,
        postcode:code, year of foundation:year, harbour master:person, district:name, nearest town:place, market day:weekday,
        oldest inn:company, largest factory:company, bishop:person, county:place, distance from the sea:measure, tallest tower:measure,
        dialling code:number, sister town:place, highest hill:name, railway line:name, annual rainfall:measure, chief of police:person,
        schoolmaster:person, emblem:animal, local hero:person, former name:name, capital:place, currency:name, area:measure,
        famous product:object, lake:name, forest:name, castle:name, newspaper:name, governor:person, priest:person""",
    "company": """director:person, headquarters:place, founding year:year, main product:object, turnover:money, number of employees:number,
        registration number:code, accountant:person, chairman:person, largest customer:company, head office:place,
        share price:money, annual profit:money, owner:person, president:person, telephone number:phone, opening hour:time,
        warehouse:place, treasurer:person, motto:name, porter:person, architect:person, main competitor:company, insurer:company""",
    "ship": """captain:person, tonnage:measure, home port:place, length:measure, builder:company, cargo:food, first mate:person,
        crew size:count, year of launch:year, top speed:measure, cook:person, call sign:code, owner:person, pilot:person,
        port of departure:place, date of sailing:date, hull colour:colour, figurehead:animal, surgeon:person, boatswain:person""",
    "project": """budget:money, deadline:date, leader:person, access code:code, sponsor:company, start date:date, team size:count,
        location:place, code name:name, reference number:code, chief engineer:person, cost:money, main goal:object, status colour:colour,
        completion year:year, contact:person, version number:number, server name:name, auditor:person, project number:number,
        launch date:date, inventor:person, meeting day:weekday, file name:name""",
    "item": """price:money, weight:measure, owner:person, maker:person, serial number:code, colour:colour, material:material,
        length:measure, width:measure, depth:measure, year of manufacture:year, inventory number:number, place of origin:place,
        combination:number, designer:person, height:measure, contents:object, value:money, age:count, label:code,
        guardian:person, keeper:person, location:place, previous owner:person, temperature:measure, donor:person, lock number:number""",
    "animal": """age:count, owner:person, breed:name, weight:measure, colour:colour, favourite food:food, trainer:person, birthplace:place,
        registration number:number, stable:place, price:money, rider:person, tag number:number, mother:name""",
}
HELD_OUT_ATTRIBUTES = {
    "person": "gardener:person, favourite flower:colour, diploma number:code, stepmother:person, pension:money, great-uncle:person",
    "place": "sheriff:person, main square:name, oldest bridge:name, time zone:code",
    "company": "spokesman:person, night watchman:person, invoice number:number",
    "ship": "steward:person, anchor weight:measure",
    "project": "supervisor:person, ticket code:code",
    "item": "repair cost:money, inspector:person",
    "animal": "vet:person, collar colour:colour",
}


def attributes(held_out: bool) -> list[tuple[str, str, str]]:
    """Return (subject kind, noun, value kind) of every composed relation, for training or held out."""
    table = HELD_OUT_ATTRIBUTES if held_out else _ATTRIBUTES
    rows = []
    for subject, line in table.items():
        for item in line.split(","):
            noun, kind = item.strip().split(":")
            rows.append((subject, noun, kind))
    return rows


def composed(subject: str, noun: str, kind: str, unseen_wording: bool = False) -> Relation:
    """Return the relation "the <noun> of <subject>" in the general wordings, or in the held-out ones."""
    if unseen_wording:
        return Relation(noun, subject, kind, wordings.UNSEEN_STATEMENTS, wordings.UNSEEN_QUESTIONS, wordings.FOLLOWUPS)
    return Relation(noun, subject, kind, wordings.STATEMENTS, wordings.QUESTIONS, wordings.FOLLOWUPS)
