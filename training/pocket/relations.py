"""What can be stated about a subject: attributes (a noun composed into general phrasings) and verbs (written out).

A phrasing uses {s} for the subject, {v} for the value, {a} for the attribute's noun and {p} for a possessive.
`HELD_OUT_ATTRIBUTES`, `HELD_OUT_VERBS` and the `UNSEEN_*` phrasings never appear in training: they measure what
the model does with relations and wordings that it was not taught.
"""

# ruff: noqa: E501 - the tables read best with a phrase unbroken

from dataclasses import dataclass


@dataclass(frozen=True)
class Relation:
    """One thing that can be said: subject kind, value kind, and its wordings.

    Attributes:
        key: unique name; two facts with one subject and one key would contradict each other.
        subject: kind of subject ("person", "place", ...).
        value: kind of value, as in `values.KINDS`.
        statements: wordings with {s} and {v}.
        questions: wordings with {s}.
        followups: questions after another question about the same subject, with {p} or {they} for it.
    """

    key: str
    subject: str
    value: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    followups: tuple[str, ...]


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

STATEMENTS = (
    "the {a} of {s} is {v}.",
    "the {a} of {s} was {v}.",
    "{s}'s {a} is {v}.",
    "{s}'s {a} was {v}.",
    "{v} is the {a} of {s}.",
    "{v} was the {a} of {s}.",
    "as for {s}, {p} {a} is {v}.",
    "the {a} of {s} turned out to be {v}.",
    "the register gives {v} as the {a} of {s}.",
    "everyone knew that {s}'s {a} was {v}.",
    "when asked about the {a} of {s}, they said {v}.",
    "{s} has {v} as {p} {a}.",
    "they say that the {a} of {s} is {v}.",
    "for {s} the {a} is {v}.",
    "{a} of {s}: {v}.",
    "{s}, whose {a} was {v}, said nothing.",
    "you must know that the {a} of {s} is {v}.",
    "it is written that the {a} of {s} was {v}.",
    "remember: the {a} of {s} is {v}.",
    "we know {v} to be the {a} of {s}.",
    "{s} told us that {p} {a} was {v}.",
    "in those days {s}'s {a} was {v}.",
    "the letter mentions {v}, the {a} of {s}.",
    "nobody doubts that {v} is {s}'s {a}.",
    "{s} - {a}: {v}.",
    "with regard to {s}, the {a} is {v}.",
    "the {a} of {s}, so far as we know, is {v}.",
    "if you ask for {s}'s {a}, it is {v}.",
    "{s}: {v} ({a}).",
    "they gave the {a} of {s} as {v}.",
    "{v}, and nothing else, is the {a} of {s}.",
    "in the papers {v} is named as {s}'s {a}.",
    "he wrote that the {a} of {s} should be {v}.",
    "she asked about {s} and learned that {p} {a} was {v}.",
    "{s} had one {a}, and that was {v}.",
    "let it be noted: {s}, {a}, {v}.",
    "it was {v} that became the {a} of {s}.",
    "{s}'s {a}, namely {v}, was well known.",
    "the file on {s} names {v} as {a}.",
    "the {a} belonging to {s} is {v}.",
    "the old book calls {v} the {a} of {s}.",
    "concerning {s}: {a} {v}.",
    "to this day the {a} of {s} remains {v}.",
    "the name of {s} stands beside {v}, {p} {a}.",
    "as {a} of {s} we find {v}.",
    "{v} was given as {s}'s {a}.",
    "what {s} calls {p} {a} is {v}.",
    "{s} keeps {v} as {p} {a}.",
    "no other {a} than {v} was ever given for {s}.",
    "the {a} (that of {s}) reads {v}.",
    "{s} gave {v} as {p} {a}.",
    "under the heading {a}, {s} has {v}.",
    "{v} stands in the papers as the {a} of {s}.",
    "the answer was {v}, when they asked for {s}'s {a}.",
    "for a long time {v} has been {s}'s {a}.",
    "{v} is what {s} has as {a}.",
    "{a}, {s}: {v}.",
)
QUESTIONS = (
    "What is the {a} of {s}?",
    "What was the {a} of {s}?",
    "What is {s}'s {a}?",
    "What was {s}'s {a}?",
    "Tell me the {a} of {s}.",
    "Give {s}'s {a}.",
    "What does the text say about the {a} of {s}?",
    "Which {a} does {s} have?",
    "Do you know {s}'s {a}?",
    "Please name the {a} of {s}.",
    "{s}: what is the {a}?",
    "State the {a} of {s}.",
    "According to the text, what is the {a} of {s}?",
    "Can you tell me {s}'s {a}?",
    "The {a} of {s}?",
    "What {a} is given for {s}?",
    "What is known about {s}'s {a}?",
    "For {s}, what is the {a}?",
    "Find the {a} of {s}.",
    "I need the {a} of {s}.",
    "Which is the {a} of {s}?",
    "Let me know {s}'s {a}.",
    "Please tell me what {s}'s {a} is.",
    "How is the {a} of {s} stated?",
    "What is mentioned as {s}'s {a}?",
    "Help me find the {a} of {s}.",
    "Show me {s}'s {a}.",
    "What about the {a} of {s}?",
    "What do you have as {s}'s {a}?",
    "What do they call the {a} of {s}?",
    "What would you say is the {a} of {s}?",
    "{s}'s {a}?",
    "{a} of {s}?",
    "Remind me of the {a} of {s}.",
    "What {a} did {s} have?",
    "About {s}: what was the {a}?",
    "What did the text give as {s}'s {a}?",
    "What is written about the {a} of {s}?",
    "Who or what is the {a} of {s}?",
    "Have you found the {a} of {s}?",
)
FOLLOWUPS = (
    "And what is {p} {a}?",
    "And {p} {a}?",
    "What about {p} {a}?",
    "What was {p} {a}?",
    "And the {a}?",
    "Do you also know {p} {a}?",
    "What is {p} {a}?",
)
UNSEEN_STATEMENTS = (
    "there is no doubt about it, the {a} of {s} must be {v}.",
    "{s} and {p} {a}, {v}, were often spoken of.",
    "our notes list {v} under {s} as {a}.",
    "according to her, {s}'s {a} had always been {v}.",
)
UNSEEN_QUESTIONS = (
    "I would like to know the {a} of {s}.",
    "Could you look up {s}'s {a} for me?",
    "Say what the {a} of {s} is.",
    "What did they record as the {a} of {s}?",
)


def attributes(held_out: bool) -> list[tuple[str, str, str]]:
    """(subject kind, noun, value kind) of every composed relation: those for training, or the held-out ones."""
    table = HELD_OUT_ATTRIBUTES if held_out else _ATTRIBUTES
    rows = []
    for subject, line in table.items():
        for item in line.split(","):
            noun, kind = item.strip().split(":")
            rows.append((subject, noun, kind))
    return rows


def composed(subject: str, noun: str, kind: str, unseen_wording: bool = False) -> Relation:
    """The relation "the <noun> of <subject>", in the general wordings (or only in those kept from training)."""

    def fill(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text.replace("{a}", noun) for text in texts)

    if unseen_wording:
        return Relation(noun, subject, kind, fill(UNSEEN_STATEMENTS), fill(UNSEEN_QUESTIONS), fill(FOLLOWUPS))
    return Relation(noun, subject, kind, fill(STATEMENTS), fill(QUESTIONS), fill(FOLLOWUPS))
