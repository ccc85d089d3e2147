"""Words of synthetic facts: invented and real-looking names, and values of every kind.

Independent of tokens. Every draw comes from the given `random.Random`, so a seed fixes it. Invented names are split by
a checksum into training and measuring names (`is_reserved`), so that no measurement uses a name from training.
"""

import random
import zlib


def _words(text: str) -> list[str]:
    return text.split()


def phrases(text: str) -> list[str]:
    """Return the phrases between bars, stripped."""
    return [phrase.strip() for phrase in text.split("|")]


# weighted by repetition: mostly plain syllables as in real names, sometimes a harder one
_ONSETS = _words("b d f g h j k l m n p r s t v w z c " * 4 + "br cl dr fl fr gr kr pl pr sh sk st str th tr ch ph qu")
_VOWELS = _words("a e i o u " * 5 + "ai ea ee ia ie oa ou y")
_CODAS = _words("n r l s t m d k " * 2 + "th nd rn ld rt ck ss x nt rk ng lt ft") + [""] * 40
_PLACE_ENDS = _words("ton wick ford burg ham stead mouth field bridge dale haven moor by port wood ness minster vale")

_TITLES = _words("Dr. Captain Mrs. Mr. Professor Miss Colonel Lady Uncle")
FIRST_NAMES = _words(
    "Anna Peter Clara Henry Martha Thomas Alice George Edith Walter Ruth Samuel Laura Victor Nora Albert Helen Simon "
    "Agnes Robert Julia Daniel Rosa Philip Emma Arthur Grace Oscar Irene Hugo Marian Felix Sylvia Leonard Vera Edmund "
    "Judith Martin Flora Stephen Olga Maria Ivan Sofia Pavel Elena Anton Ingrid Lars Astrid Erik Greta Otto Liesel "
    "Karl Amina Omar Leila Hassan Fatima Yusuf Priya Arjun Meera Ravi Anjali Mei Chen Yuki Kenji Hana Carlos Lucia "
    "Diego Ines Pablo Marta Rafael Luca Giulia Marco Paolo Bianca Pierre Camille Luc Margot Jean Kofi Ama Kwame Zola "
    "Tariq Nadia Boris Katya Mikhail Tomas Eva Jakub Petra Milan Dana Liam Aoife Sean Maeve Owen Carys Rhys Isla "
    "Callum"
)
LAST_NAMES = _words(
    "Smith Brown Taylor Carter Mills Webb Porter Hayes Fletcher Norris Lambert Weaver Hobbs Draper Quinn Barlow Finch "
    "Marsh Thorne Pike Wolfe Abbott Cross Dalton Ellis Frost Garner Holt Ingram Jarvis Kemp Lowell Mercer Nash "
    "Osborne Pratt Reeves Stokes Tanner Underhill Vaughn Whitaker York Becker Hoffmann Schmidt Keller Vogel Weber "
    "Lindqvist Berg Dahl Nilsen Holm Petrov Ivanova Volkov Sokolov Novak Dvorak Kowalski Rossi Bianchi Moretti "
    "Ferrari Conti Garcia Lopez Moreno Silva Costa Pereira Dubois Laurent Moreau Girard Okafor Mensah Diallo Haddad "
    "Nasser Rahman Khan Patel Sharma Gupta Tanaka Sato Mori Wong Zhang Li Park Kim Nguyen Murphy Kelly Byrne Evans "
    "Pritchard Fraser"
)

COLOURS = _words(
    "red blue green yellow black white grey brown purple orange pink crimson violet scarlet turquoise gold silver "
    "ivory amber indigo maroon teal olive beige lilac navy cream bronze copper emerald"
)
PROFESSIONS = phrases(
    "baker| teacher| lawyer| doctor| carpenter| blacksmith| sailor| painter| farmer| nurse| librarian| engineer| "
    "tailor| butcher| musician| clerk| miner| shepherd| gardener| chemist| printer| banker| soldier| fisherman| "
    "weaver| potter| surgeon| journalist| photographer| mason| plumber| judge| actor| dancer| cook| driver| pilot| "
    "dentist| barber| jeweller| locksmith| watchmaker| translator| architect| astronomer| botanist| geologist| "
    "historian| midwife| postman| gamekeeper| bookbinder| glass blower| piano tuner| ship's carpenter| tax collector| "
    "stage manager| map maker| lighthouse keeper| wine merchant| mathematician"
)
OBJECTS = phrases(
    "lamp| clock| chest| mirror| violin| ring| sword| map| letter| coin| book| telescope| kettle| basket| umbrella| "
    "lantern| knife| necklace| painting| hammer| compass| chair| blanket| bottle| key| trunk| bicycle| saddle| drum| "
    "flute| statue| vase| pistol| candle| carpet| microscope| typewriter| pocket watch| tea set| fishing rod| silver "
    "spoon| brass bell| wooden horse| gold locket| glass bowl| iron box| leather bag| silk scarf| stone lion| oil "
    "lamp| music box| chess set| rocking chair"
)
ANIMALS = _words(
    "dog cat horse parrot rabbit goat pig donkey tortoise falcon goose monkey hedgehog canary fox owl raven pony "
    "sheep turkey ferret squirrel snake frog lizard swan pigeon hamster badger otter"
)
FOODS = phrases(
    "apple pie| roast lamb| onion soup| plum cake| fried trout| rye bread| goat cheese| pancakes| rice pudding| "
    "oysters| lentils| mushroom stew| potato salad| honey| figs| cherries| pears| walnuts| dumplings| gingerbread| "
    "smoked eel| lemon tart| porridge| pickled herring| bean soup| apricots| plums| grapes| chestnuts| strawberries"
)
MATERIALS = _words(
    "oak pine marble copper iron steel brass granite silk wool linen leather glass clay ivory tin lead bronze"
)
INSTRUMENTS = _words(
    "violin piano cello flute harp trumpet organ guitar oboe drum clarinet lute viola horn banjo accordion"
)
SUBJECTS = _words(
    "chemistry history law botany geometry Latin Greek music medicine physics theology drawing algebra astronomy "
    "geography philosophy engineering economics zoology grammar"
)
HOBBIES = phrases(
    "fishing| chess| riding| gardening| painting| dancing| sailing| hunting| swimming| knitting| archery| fencing| "
    "bird watching| bee keeping| stamp collecting| wood carving| mountain climbing| poetry| pottery| skating"
)
MONTHS = _words("January February March April May June July August September October November December")
WEEKDAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
ADJECTIVES = _words(
    "small large old new broken brass wooden silver painted blue red green black white round square heavy light "
    "narrow tall short long dusty locked hidden golden iron copper marble leather yellow grey striped carved rusty "
    "second third fourth fifth northern southern eastern western upper lower left inner outer front"
)
THINGS = _words(
    "box chest drawer cabinet door gate safe vault cupboard trunk locker case room cellar tower wing chapel barn mill "
    "bridge lamp clock bell mirror desk shelf table boat cart engine machine pump lantern stove kettle jar bottle "
    "basket ledger notebook map chart parcel crate barrel statue fountain well garden orchard field cottage stable "
    "shed office"
)
UNITS = _words(
    "miles feet yards metres kilometres pounds kilograms tons gallons litres acres hours minutes days weeks degrees "
    "inches barrels bushels pages"
)
CURRENCIES = _words("pounds dollars francs marks crowns shillings guineas florins euros rupees")
COMPANY_ENDS = _words(
    "Works Mills Ltd Brothers Company Bank Press Foundry Shipping Motors Institute College Hotel Brewery Trust"
)


def is_reserved(name: str) -> bool:
    """Return whether a name is in the eighth of invented names kept for measurements (split by CRC-32)."""
    return zlib.crc32(name.encode()) % 8 == 0


def syllables(rng: random.Random, count: int) -> str:
    """Return an invented word of `count` syllables, lower case."""
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + (rng.choice(_CODAS) if i == count - 1 or rng.random() < 0.2 else "")
        for i in range(count)
    )


def invented(rng: random.Random, reserved: bool, lowest: int = 1, highest: int = 3) -> str:
    """Return a capitalised invented name of 3 to 12 letters, a reserved one if `reserved` is set."""
    while True:
        count = rng.choices((1, 2, 3), (2, 5, 1))[0]
        word = syllables(rng, min(max(count, lowest), highest)).capitalize()
        if 3 <= len(word) <= 12 and is_reserved(word) == reserved:
            return word


def first_name(rng: random.Random, reserved: bool) -> str:
    """Return a given name: in training real-looking one time in four, in measurements always invented."""
    return rng.choice(FIRST_NAMES) if not reserved and rng.random() < 0.3 else invented(rng, reserved, 1, 2)


def last_name(rng: random.Random, reserved: bool) -> str:
    """Return a family name: in training real-looking one time in four, in measurements always invented."""
    return rng.choice(LAST_NAMES) if not reserved and rng.random() < 0.3 else invented(rng, reserved, 2, 3)


def person(rng: random.Random, reserved: bool) -> str:
    """Return a person's name, mostly given name and family name."""
    shape = rng.random()
    if shape < 0.72:
        return f"{first_name(rng, reserved)} {last_name(rng, reserved)}"
    if shape < 0.88:
        return first_name(rng, reserved)
    return f"{rng.choice(_TITLES)} {last_name(rng, reserved)}"


def place(rng: random.Random, reserved: bool) -> str:
    """Return an invented town or region."""
    while True:
        stem = invented(rng, reserved, 1, 2)
        name = stem + rng.choice(_PLACE_ENDS) if rng.random() < 0.4 else stem
        if is_reserved(name) == reserved:
            return ("New " if rng.random() < 0.04 else "") + name


def company(rng: random.Random, reserved: bool) -> str:
    """Return an invented firm or institution."""
    if rng.random() < 0.2:
        return f"{last_name(rng, reserved)} and {last_name(rng, reserved)}"
    return f"{last_name(rng, reserved)} {rng.choice(COMPANY_ENDS)}"


def digits(rng: random.Random, lowest: int, highest: int) -> str:
    """Return `lowest` to `highest` digits without a leading zero."""
    count = rng.randint(lowest, highest)
    return str(rng.randint(10 ** (count - 1), 10**count - 1))


def code(rng: random.Random) -> str:
    """Return a code of letters and digits in one of several shapes."""

    def letters(count: int) -> str:
        return "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(count))

    shape = rng.randrange(6)
    if shape == 0:
        return f"{letters(2)}-{digits(rng, 3, 4)}"
    if shape == 1:
        return letters(1) + digits(rng, 3, 5)
    if shape == 2:
        return f"{digits(rng, 2, 3)}-{digits(rng, 2, 4)}"
    if shape == 3:
        return f"{letters(3)}{digits(rng, 2, 3)}"
    if shape == 4:
        return f"{digits(rng, 2, 2)}{letters(2)}{digits(rng, 1, 2)}"
    return f"{letters(2)}{digits(rng, 1, 2)}-{letters(1)}{digits(rng, 1, 2)}"


def hexadecimal(rng: random.Random, groups: tuple[int, ...]) -> str:
    """Return random hexadecimal digits in groups joined by hyphens; (8, 4, 4, 4, 12) is a UUID."""
    return "-".join("".join(rng.choice("0123456789abcdef") for _ in range(g)) for g in groups)
