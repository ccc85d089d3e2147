"""Settings that several methods with an archive share, declared once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from engine.models.spec import ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.archive.bank import bank_bytes
from engine.parts.archive.options import AUTO, DTYPES, QUESTION_PASSES, TIERS, cache_units
from engine.parts.archive.probes import probe_bytes
from engine.parts.archive.tier_plan import archive_footprint, bank_footprint
from engine.parts.footprint import Footprint, ReadingTask
from engine.parts.positions import PRUNING_RULES
from engine.parts.selectors.stages import Stage, compared, parse_stages
from engine.records import DEVICE, DISK, HOST, Usage

COMPARES = ("heads", "groups")
PROBES = (0, 1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings:
    """Settings of an archive: its dtype, its place, and how often a question looks into it.

    Attributes:
        looks: how often a question is asked at most (`QUESTION_PASSES`).
        store: dtype of the archive, a key of `DTYPES`.
        tier: where entries lie (`TIERS`): host memory, the device, or full slabs on disk; `auto` leaves it to a plan.
    """

    archive_choices: ClassVar[Mapping[str, Collection[Any]]] = {
        "looks": QUESTION_PASSES,
        "store": DTYPES,
        "tier": TIERS,
    }

    looks: int = 2
    store: str = "bfloat16"
    tier: str = AUTO

    @property
    def place(self) -> str:
        """The tier of a memory that is made without a plan: `auto` becomes host memory."""
        return HOST if self.tier == AUTO else self.tier

    @property
    def read_in_place(self) -> bool:
        """True if a GPU's kernels read the archive where it lies."""
        return self.place != DISK

    @property
    def recordable(self) -> bool:
        """True if the archive lets the pass of an answer's token be recorded as a CUDA graph."""
        return self.read_in_place and self.looks == 1

    def new_archive(self, spec: ModelSpec, sketch: torch.dtype | None = None, probes: int = 0) -> Archive:
        """Return an empty archive. sketch: kind of the keys' sketches, or None; probes: see `PruningSettings`.

        Raises:
            SettingsError: a quantisation that this model or its device cannot have.
        """
        return Archive(spec, DTYPES[self.store], self.place, self.looks, sketch, probes)

    def archive_footprint(self, spec: ModelSpec, task: ReadingTask, first: int, grows: bool = True) -> Footprint:
        """Return what the archive takes. See the function of that name for `first` and `grows`."""
        return archive_footprint(spec, task, first, DTYPES[self.store], self.place, grows)


@dataclass(frozen=True, kw_only=True)
class DistanceSettings:
    """Settings of the positions of far keys, which have left the window.

    Attributes:
        extend_always: whether far keys follow the rules for long texts also inside the model's window, where they are
            at their true distances otherwise.
    """

    extend_always: bool = False

    def true_positions(self, spec: ModelSpec, task: ReadingTask) -> int:
        """Return the exclusive upper bound of far keys' true positions; 0 if they never stand there."""
        return 0 if self.extend_always else min(task.total, spec.window)


@dataclass(frozen=True, kw_only=True)
class BankSettings(ArchiveSettings):
    """Settings of an archive with a bank on the device.

    Attributes:
        cache: units that the bank holds, None for as many as suit the tier.
    """

    cache: int | None = None

    def bank_units(self, spec: ModelSpec, needed: int) -> int:
        """Return how many units the bank holds. needed: units that one block of queries looks up."""
        return cache_units(spec, self.cache, needed, self.place)

    def bank_footprint(self, spec: ModelSpec, task: ReadingTask, needed: int, size: int) -> Footprint:
        """Return what the bank takes. needed: as above; size: entries per unit."""
        units, dtype = self.bank_units(spec, needed), DTYPES[self.store]
        return bank_footprint(bank_bytes(spec.looking_far, units, size, dtype, task.total))


@dataclass(frozen=True, kw_only=True)
class PruningSettings(ArchiveSettings):
    """Settings of an archive, and of the stages in which queries prune it.

    Attributes:
        stages: "query_block:chunk:keep:refresh" for each, coarse to fine.
        pruning: position rule while pruning (relative, chunk, infllm, dynamic, true).
        probes: n keeps every n-th key on the device as well, for the tokens of an answer, if the archive is in host
            memory; 0 for none.
        compares: `heads`: each query head finds a chunk's best key by itself; `groups`: the heads of a KV head find
            one together, from every 4th query in all stages but the last.
    """

    pruning_choices: ClassVar[Mapping[str, Collection[Any]]] = {
        **ArchiveSettings.archive_choices,
        "pruning": PRUNING_RULES,
        "probes": PROBES,
        "compares": COMPARES,
    }

    stages: str = "32:16:1024:8 32:4:256:4"
    pruning: str = "relative"
    probes: int = 0
    compares: str = "heads"

    @property
    def grouped(self) -> bool:
        """True if the query heads of a KV head compare the same keys."""
        return self.compares == "groups"

    @property
    def parsed_stages(self) -> tuple[Stage, ...]:
        """The stages.

        Raises:
            SettingsError: text that cannot be read, or stages that do not nest.
        """
        return parse_stages(self.stages)

    @property
    def query_block(self) -> int:
        """Queries that prune together."""
        return self.parsed_stages[0].query_block

    @property
    def compared(self) -> float:
        """Keys that a query is compared with, per entry of the archive."""
        return compared(self.parsed_stages)

    @property
    def probes_held(self) -> int:
        """The setting `probes` where the archive is in host memory, else 0."""
        return self.probes if self.place == HOST else 0

    def probe_footprint(self, spec: ModelSpec, far: int) -> Footprint:
        """Return the bytes of `probes` on the device. far: entries of the archive."""
        every = self.probes_held
        held = probe_bytes(spec.looking_far, DTYPES[self.store], far, every) if every else 0
        return Footprint(Usage({}, {DEVICE: held}))
