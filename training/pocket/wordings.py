"""General wordings of "the A of S is V": some written out, many more composed of parts, and some kept for measuring.

A wording uses {s} for the subject, {v} for the value, {a} for the attribute's noun and {p} for a possessive. Those of
`UNSEEN_STATEMENTS` and `UNSEEN_QUESTIONS`, and the longest stretch of words in each of them, are in none of the others.
"""

# ruff: noqa: E501 - the tables read best with a phrase unbroken

from training.pocket.words import phrases

_WRITTEN_STATEMENTS = (
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
_WRITTEN_QUESTIONS = (
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


_PHRASES = ("the {a} of {s}", "{s}'s {a}")
_LONG_PHRASES = ("the {a} belonging to {s}", "the {a} that {s} has")
_COPULAS = phrases(
    "is| was| has been| had been| will be| is still| is now| was then| remains| became| has become| is said to be| is believed to be| "
    "seems to be| appears to be| proved to be| is simply| is none other than| is, it seems,| was at first| is officially| has long been| "
    "is at present| was once| might well be| would be| is supposed to be| can only be| is likely to be| was, in the end,| ought to be| "
    "has for years been| is never anything but| is reported to be| had lately been| had since been| had first been| was always| was never but| "
    "could be| may have been| should have been| was to be| is thought to be| must once have been| had in truth been| is, as ever,"
)
_REMARKS = phrases(
    "is on record| was mentioned twice| came up again| is noted here| was never questioned| is easily forgotten| surprised them all| "
    "is worth noting| was the talk of the town| was not in dispute| appears on the first page| was checked again| made them laugh| "
    "is known to few| comes to mind| has a page of its own| was the first thing they spoke about| is all that one remembers"
)
_SOURCES = phrases(
    "the register| the ledger| the clerk| our guide| the notice| a witness| the catalogue| the record| her diary| his uncle| the inscription| "
    "the index| an old letter| the archive| the newspaper| a neighbour| the report| page nine| the new edition"
)
_REPORTS = phrases("gives| names| mentions| records| shows| quotes| states| enters| cites| reports| has| puts down")
_MANY_SOURCES = phrases(
    "the records| two letters| most books| the papers| my cards| their files| all accounts| the older maps| these tables| his diaries| both clerks| "
    "the minutes| several witnesses| our guides| the registers| some friends| the notes of the clerk| her letters| the authorities| we| they| I| you"
)
_MANY_REPORT = phrases(
    "give| name| mention| record| show| quote| state| enter| cite| report| have| put down| write| note| print| carry| hold| keep| place| add| "
    "publish| store| count| register| know| set down| repeat| describe| read| sign| mark| recognise"
)
_SAYINGS = phrases("says| claims| insists| confirms| adds| believes| makes it clear| repeats| admits| proves")
_BESIDE = phrases("for| beside| against| next to| opposite| with| in the row of")
_HOLDINGS = phrases("has| had| got| chose| took| claims| wanted| kept| uses| received| accepted| still has| picked")
_ENTRIES = (
    "{a} ({s}): {v}.", "{s} / {a} / {v}.", "{a} of {s} = {v}.", "{s} | {a} | {v}.", "* {a} of {s}: {v}.", "{s}: {a} = {v}.",
    "{v} = {a} of {s}.", "{v} ({a} of {s}).", "{v} - {s}'s {a}.", "{s}, {a} {v}.", "there is one {a} of {s}: {v}.", "{v} / {a} / {s}.",
    "write down {v} as {s}'s {a}.", "mark {v}: it is the {a} of {s}.", "{v}! That is the {a} of {s}.", "the {a}? For {s} it is {v}.",
)  # fmt: skip


def _composed_statements() -> tuple[str, ...]:
    """Return every order of subject, noun and value, with every part that fits."""
    found: list[str] = []
    for phrase in _PHRASES:
        found += [f"{phrase} {copula} {{v}}." for copula in _COPULAS]
        found += [f"{{v}} {copula} {phrase}." for copula in _COPULAS]
        found += [f"{phrase}, {{v}}, {remark}." for remark in _REMARKS]
        found += [f"{phrase} ({{v}}) {remark}." for remark in _REMARKS[::3]]
        found += [f"{{v}}, {phrase}, {remark}." for remark in _REMARKS]
        for source in _SOURCES:
            found += [f"{source} {report} {{v}} as {phrase}." for report in _REPORTS[::3]]
            found += [f"{source} {report} {phrase} as {{v}}." for report in _REPORTS[1::4]]
            says = zip(_SAYINGS[::3], _COPULAS[::12], strict=True)
            found += [f"{source} {saying} that {phrase} {copula} {{v}}." for saying, copula in says]
    for phrase in _LONG_PHRASES:
        found += [f"{phrase} {copula} {{v}}." for copula in _COPULAS[::4]]
    for index, source in enumerate(_SOURCES):
        report, copula = _REPORTS[index % len(_REPORTS)], _COPULAS[index]
        for step, beside in enumerate(_BESIDE):
            found.append(f"{source} {_REPORTS[(index + step) % len(_REPORTS)]} {{v}} {beside} {{s}} as {{a}}.")
        found.append(f"{source} {report} {{v}} as {{a}} {_BESIDE[index % len(_BESIDE)]} {{s}}.")
        found.append(f"for {{s}}, {source} {report} {{v}} as the {{a}}.")
        found.append(f"{source} speaks of {{s}} and says that {{p}} {{a}} {copula} {{v}}.")
    for index, report in enumerate(_MANY_REPORT):
        for step, phrase in enumerate(_PHRASES):
            source = _MANY_SOURCES[(2 * index + step) % len(_MANY_SOURCES)]
            found.append(f"{source} {report} {{v}} as {phrase}.")
        for step, beside in enumerate((*_BESIDE, "by", "after", "before", "near", "above", "below", "at")):
            source = _MANY_SOURCES[(index + step) % len(_MANY_SOURCES)]
            found.append(f"{source} {report} {{v}} {beside} {{s}} as {{a}}.")
    for holding in _HOLDINGS:
        found += [f"{{s}} {holding} {{v}} {link} {{p}} {{a}}." for link in ("as", "for")]
        found.append(f"it was {{v}} that {{s}} {holding} as {{p}} {{a}}.")
    for index, remark in enumerate(_REMARKS):
        copula = _COPULAS[index]
        found.append(f"{{s}} with {{p}} {{a}}, {{v}}, {remark}.")
        found.append(f"{{s}}, {{p}} {{a}} {copula} {{v}}, {remark}.")
        found.append(f"{{s}}, whose {{a}} {copula} {{v}}, {remark}.")
        found.append(f"{{s}} {remark}, and so {('is', 'was')[index % 2]} {{v}}, {{p}} {{a}}.")
    for copula in _COPULAS[::2]:
        found.append(f"of {{s}} it is known that {{p}} {{a}} {copula} {{v}}.")
        found.append(f"with {{s}}, the {{a}} {copula} {{v}}.")
        found.append(f"what is called the {{a}} of {{s}} {copula} {{v}}.")
        found.append(f"{{s}} has one {{a}}, which {copula} {{v}}.")
    return (*found, *_ENTRIES)


_ASKING = phrases(
    "tell me| give me| find| name| state| show me| remind me of| check| look for| search for| repeat| read out| write down| work out| "
    "help me with| recall| point out| mention"
)
_ABOUT = phrases(
    "What have you got for| What stands there for| What can be read about| How about| What does it say about| What was said of| "
    "Is there anything on| Does the text give| Which words name| So what is"
)
_ASKED_COPULAS = phrases(
    "has been| had been| would be| is said to be| is now| is still| was then| is supposed to be| became"
)
_STARTS = phrases("Do you know| Can you see| Does it say| Is it stated| Did you read")
_BOTH = phrases(
    "Of {s}, what is the {a}?| With {s}, what was the {a}?| {s} has which {a}?| What is it that {s} has as {a}?| {s}, {a}?| "
    "Take {s}: what is the {a}?| What does {s} have for {a}?| In the case of {s}, what is the {a}?| Which {a} belongs to {s}?| "
    "What {a} belongs to {s}?| Whose {a}? That of {s}.| The {a} that {s} has is what?| The {a} of {s} is what?| {a} - {s}?"
)


def _composed_questions() -> tuple[str, ...]:
    """Return every form of question with both ways to name the attribute."""
    found: list[str] = []
    for phrase in _PHRASES:
        found.append(f"What became {phrase}?")
        found += [f"Tell me what {phrase} {copula}." for copula in _ASKED_COPULAS]
        found += [f"Can you {asking} {phrase}?" for asking in _ASKING]
        found += [f"Please {asking} {phrase}." for asking in _ASKING]
        found += [f"Would you {asking} {phrase}?" for asking in _ASKING[::3]]
        found += [f"{asking.capitalize()} {phrase}." for asking in _ASKING]
        found += [f"I want to {verb} {phrase}." for verb in ("know", "find", "see", "check", "hear", "remember")]
        for start in ("I wonder", "I ask", "I need to know", "Tell us"):
            found += [f"{start} what {phrase} is.", f"{start} what {phrase} was."]
        found += [f"{start} what {phrase} is?" for start in _STARTS]
        found += [f"{about} {phrase}?" for about in _ABOUT]
        found += [f"I am looking for {phrase}.", f"I have forgotten {phrase}."]
        found += [f"My question is about {phrase}.", f"Answer me: {phrase}?"]
    return (*found, *_BOTH)


def _half(written: tuple[str, ...], composed: tuple[str, ...]) -> tuple[str, ...]:
    """Return both together, with the written ones repeated until they are about half."""
    return written * max(1, len(composed) // len(written)) + composed


STATEMENTS = _half(_WRITTEN_STATEMENTS, _composed_statements())
QUESTIONS = _half(_WRITTEN_QUESTIONS, _composed_questions())
