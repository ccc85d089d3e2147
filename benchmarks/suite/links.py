"""Traits of people, stated and asked about in different words: only common knowledge connects them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """A trait of a person.

    Attributes:
        told: sentence with a place for a name.
        asked: question whose answer is that name.
    """

    told: str
    asked: str


LINKS = (
    Link("{} saw the Eiffel Tower from the bedroom window every morning.", "Which person lived in Paris?"),
    Link("{} kept a small stall right beside the Colosseum.", "Which person worked in Rome?"),
    Link("{} rode a camel to the office, past the Sphinx and the pyramids.", "Which person lived in Egypt?"),
    Link("{} grew up among kangaroos, an hour from Sydney.", "Which person was an Australian?"),
    Link("{} never touched meat or fish.", "Which person was a vegetarian?"),
    Link("{} had to inject insulin before each meal.", "Which person was a diabetic?"),
    Link("{} fell ill after a glass of milk or a slice of cheese.", "Which person was lactose intolerant?"),
    Link("{} could not tell red from green.", "Which person was colour-blind?"),
    Link("{} spent the days drilling and filling molars.", "Which person was a dentist?"),
    Link("{} kneaded dough and heated the oven long before dawn.", "Which person was a baker?"),
    Link("{} mended leaking pipes and blocked sinks for a living.", "Which person was a plumber?"),
    Link("{} sat in the cockpit of a jumbo jet three times a week.", "Which person was a pilot?"),
    Link("{} gave children lessons in arithmetic and spelling.", "Which person was a teacher?"),
    Link("{} pulled a trawler's nets full of cod over the rail.", "Which person was a fisherman?"),
    Link("{} cut hair and trimmed beards from nine to five.", "Which person was a barber?"),
    Link("{} played Chopin on the big black Steinway each evening.", "Which person was a pianist?"),
    Link("{} lost the use of both eyes as a baby.", "Which person was blind?"),
    Link("{} had buried a husband the year before and lived alone since.", "Which person was a widow?"),
    Link("{} wore a white wig and sentenced thieves to jail.", "Which person was a judge?"),
    Link("{} swung a hammer at glowing iron beside the anvil.", "Which person was a blacksmith?"),
    Link("{} counted craters on the moon through a telescope.", "Which person was an astronomer?"),
    Link("{} took the hives apart and scraped out the honey.", "Which person was a beekeeper?"),
    Link("{} owned eleven Rembrandts and four Vermeers.", "Which person was an art collector?"),
    Link("{} got up at four to milk forty cows.", "Which person was a farmer?"),
)
