"""The model to offer where the one that ships is chosen: one that is here, one to fetch, or none without a network."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.machine.local_models import LocalModel, local_models
from app.machine.mirror import ON_MIRROR, mirror_has
from app.machine.model_names import POCKET, SMOLLM2, shown_name, split_model
from app.machine.pace import reading_seconds
from app.machine.planning import rates_here
from app.machine.recommended import (
    BESIDE,
    NOVEL_TOKENS,
    QWEN25_1B5,
    Recommended,
    choices_here,
    form_in,
    memory_for_weights,
    total_memory,
)
from sessions import ContextRow

HERE, HUB, MIRROR, NOWHERE = "here", "hub", "mirror", "nowhere"
BETTER = 250e6
"""Least weights of a model that is better than those that ship."""
MOST_ON_CPU = {0: 4.5e9, 28 * 10**9: 9.5e9}
"""Most weights of a model that a processor is offered, by bytes of memory of the machine."""
FRESH_SEC = 60.0
"""Time after which this machine and the network are looked at again."""


@dataclass(frozen=True)
class Offer:
    """A model that is better than those that ship.

    way: HERE, on this computer; HUB or MIRROR, to be fetched from there; NOWHERE, if there is no network.
    name: name that `--model` takes, or the name to fetch; "" for NOWHERE.
    title: name for people.
    place: the program that keeps it, for HERE.
    bytes: bytes to download.
    novel_sec: time to read a novel.
    licence, suits: see `Recommended`.
    """

    way: str
    name: str = ""
    title: str = ""
    place: str = ""
    bytes: int = 0
    novel_sec: float = 0.0
    licence: str = ""
    suits: str = ""


def ships(name: str) -> bool:
    """Return whether a name is that of a model that ships, in any quantisation."""
    return split_model(name)[0] in (POCKET, SMOLLM2)


def reachable(device: str) -> tuple[str, list[Recommended]]:
    """Return HUB, MIRROR or NOWHERE, and the models that fit this machine and can be fetched from there, best first."""
    from engine.models.hub import hub_answers

    fitting = choices_here(device)
    if not fitting or hub_answers():
        return HUB, fitting
    if QWEN25_1B5 in fitting and mirror_has(ON_MIRROR):
        return MIRROR, [QWEN25_1B5]
    return NOWHERE, []


class Offers:
    """Finds the offer for this machine and the models to fetch, and keeps them for a while. Any thread may ask."""

    def __init__(self, home: Path, device: str, readings: Callable[[], list[ContextRow]]) -> None:
        """Keep the home and the device. Nothing is looked at yet. readings: returns those of the home, latest first."""
        self._home, self._device, self._readings = home, device, readings
        self._lock = threading.RLock()
        self._kept: dict[str, tuple[float, Any]] = {}

    def get(self) -> Offer | None:
        """Return the offer; None if nothing better fits this machine."""
        offer: Offer | None = self._fresh("offer", self._find)
        return offer

    def to_fetch(self) -> tuple[str, list[Recommended]]:
        """Return where models can be fetched from, and those that fit, best first."""
        found: tuple[str, list[Recommended]] = self._fresh("fetch", lambda: reachable(self._device))
        return found

    def _fresh(self, name: str, find: Callable[[], Any]) -> Any:
        """Return what was found not long ago under a name, or find it."""
        with self._lock:
            if name not in self._kept or time.monotonic() - self._kept[name][0] > FRESH_SEC:
                self._kept[name] = time.monotonic(), find()
            return self._kept[name][1]

    def _find(self) -> Offer | None:
        found = [each for each in local_models(self._home) if not each.reason and each.place != "shipped"]
        if best := self._best(found):
            seconds = self._seconds(best.parameters, lambda name: name in (best.name, best.path))
            return Offer(HERE, best.name, shown_name(best.name), best.place, novel_sec=seconds)
        way, fitting = self.to_fetch()
        if way == NOWHERE:
            return Offer(NOWHERE)
        return self._to_fetch(way, fitting[0]) if fitting else None

    def _best(self, found: list[LocalModel]) -> LocalModel | None:
        """Return the largest model here that fits and that this machine reads with in bearable time."""
        room, gpu = memory_for_weights(self._device)
        form = form_in(self._device)
        total = total_memory(self._device)
        most = float("inf") if gpu else max(size for memory, size in MOST_ON_CPU.items() if memory <= total)
        fitting = [each for each in found if BETTER <= each.parameters <= most and each.bytes_in(form) + BESIDE <= room]
        return max(fitting, key=lambda each: each.parameters, default=None)

    def _to_fetch(self, way: str, model: Recommended) -> Offer:
        seconds = self._seconds(model.parameters, model.is_named)
        return Offer(way, model.name, model.title, "", model.download, seconds, model.licence, model.suits)

    def _seconds(self, parameters: float, is_model: Callable[[str], bool]) -> float:
        rates = rates_here(self._home, self._device)
        return reading_seconds(NOVEL_TOKENS, parameters, rates, self._readings(), is_model)
