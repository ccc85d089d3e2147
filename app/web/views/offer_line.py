"""The line that offers a better model than the one that ships, as HTML."""

from pathlib import Path

from app.formatting import byte_size, time_in_words
from app.home import MODELS
from app.language import joined, t, told
from app.machine.offer import HERE, HUB, MIRROR, Offer
from app.web.views.markup import esc

SHOWN_PLACES = {"home": "Stockpot", "cache": "Hugging Face"}


def offer_line(offer: Offer, home: Path) -> str:
    """Return the offer in one line. home: the home folder, which takes models without a network."""
    model, novel = offer.title, t("a novel in {time}", time=time_in_words(offer.novel_sec))
    size = t("{size} to fetch", size=byte_size(offer.bytes))
    if offer.way == HERE:
        place = SHOWN_PLACES.get(offer.place, offer.place)
        here = t("{model} is on this computer ({place}) and answers better", model=model, place=place)
        said = f"{here} · {novel}"
    elif offer.way == HUB:
        said = f"{t('{model} answers better', model=model)} · {size} · {offer.licence} · {novel}"
    elif offer.way == MIRROR:
        without = t("Hugging Face cannot be reached, but the package mirror that pip uses has {model}", model=model)
        said = f"{without} · {size} · {offer.licence} · {novel}. {told(f'Good for {offer.suits}.')}"
    else:
        said = joined(
            [
                t("There is no network, so no better model can be fetched."),
                t("To bring one, put a .gguf file from another computer into {folder}.", folder=str(home / MODELS)),
            ]
        )
    return f'<p class="quiet" role="status">{esc(said)}</p>'


def button_of(offer: Offer, *, reads: bool) -> str:
    """Return the words on the button. reads: whether documents are chosen, which are then read with it."""
    if offer.way == HERE:
        return t("Read with it") if reads else t("Use it")
    return t("Get it and read") if reads else t("Get it")
