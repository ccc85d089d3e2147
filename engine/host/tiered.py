"""What memories with a host tier share: whose the tier is, what of it a pass may look at, and looking again.

`retrieving.py` lays it over sinks and a window, `methods/recall.py` over a condensed memory.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from engine.focus import WIDEST, Focus, Gaze
from engine.host.host_tier import HostTier
from engine.host.sketch import Sketch
from engine.memories.memory import Memory
from engine.records import DEVICE, DISK, HOST, LoadedParts, Parts, Usage
from kernels import choice


class TieredMemory(Memory):
    """Laid over a memory on the device."""

    def keep_on_host(self, dtype: torch.dtype, looks: int, tier: str = HOST, sketch: torch.dtype | None = None) -> None:
        """Set up, once, before anything is read.

        dtype: of the host tier; looks: how often a question is asked at most; tier: where full slabs go; sketch: kind
        of its keys' sketches, None for none.
        """
        looking = self.spec.looking_far
        self.host = HostTier(looking, dtype, sketch=None if sketch is None else Sketch(looking, sketch))
        self.tier = tier
        self.looks = looks
        self.answering = False  # in a conversation
        self.gaze = Gaze(looks - 1)
        self.named: Focus | None = None  # what somebody named to look at
        self.looked_at: Tensor | None = None  # of this pass: the entries of the host tier to look at, all if None

    @property
    @abstractmethod
    def far(self) -> int:
        """Entries of the host tier that the next token does not see without looking them up."""

    def read_in_place(self) -> bool:
        """Whether what the model runs on reads the host tier itself, and waits for nothing that the host does there."""
        return self.spec.device.type == "cpu" or (choice.implementation() == "triton" and self.tier != DISK)

    def reserve(self, tokens: int) -> None:
        """The last slab will be no larger than it must be."""
        super().reserve(tokens)
        self.host.expected = tokens

    def require_rest(self) -> None:
        """Refuse a text of which the host's memory cannot hold what is still to come."""
        self.host.require_rest(leaving=self.tier == DISK)

    def reach(self, far: int) -> None:
        """A pass begins that may look up the first `far` entries: they must be there, and of them those to look at."""
        self.host.settle(needed=far)
        focus = self.focused
        self.looked_at = None if focus is None else focus.behind(far)

    @property
    def focused(self) -> Focus | None:
        """Where the next pass looks, None for everywhere."""
        return self.gaze.focus or self.named

    def look_at(self, named: Tensor) -> None:
        """Of the host tier."""
        self.named = Focus.named(named, self.host.source(), self.far)

    def looks_again(self) -> bool:
        """In a conversation, once more is far than may stand out."""
        looked_at = self.far if self.named is None else len(self.named.behind(self.far))
        return self.gaze.again > 0 and self.answering and looked_at > WIDEST

    def focus(self, mass: Tensor | None) -> None:
        """What has stood out of all that is far, or of what was named."""
        if mass is None:
            self.gaze, self.named = Gaze(self.looks - 1), None
        else:
            self.gaze = self.gaze.after(mass, self.host.source(), self.far)

    def fork(self) -> Self:
        """The host tier is shared."""
        child = super().fork()  # type: ignore[safe-super]  # a memory on the device comes next in line
        child.host, child.answering = self.host.fork(), True
        return child

    def snapshot(self) -> Self:
        """The host tier's slabs are only ever appended to."""
        child = super().snapshot()
        child.host = self.host.snapshot()
        return child

    def lets_go(self) -> bool:
        """What leaves it is in the host tier."""
        return False

    def remembered(self, tokens: int) -> Tensor:
        """What the host tier holds, for all heads."""
        held, source = torch.zeros(tokens), self.host.source()
        held[source[source >= 0].long()] = 1.0
        return held

    def usage(self) -> Usage:
        """Beside what is on the device: on the host everything, but what is mapped from disk."""
        device = super().usage()  # type: ignore[safe-super]
        entries, size = self.host.on_disk()
        usage = Usage(
            {DEVICE: device.entries[DEVICE], HOST: self.host.length - entries},
            {DEVICE: device.bytes[DEVICE] + self.host.device_bytes(), HOST: self.host.nbytes()},
        )
        if not entries:
            return usage
        return Usage({**usage.entries, DISK: entries}, {**usage.bytes, DISK: size})

    def full_in_memory(self) -> int:
        """Bytes of full slabs, if they are to go to disk."""
        return self.host.full_in_memory() if self.tier == DISK else 0

    def adopt(self, parts: LoadedParts) -> None:
        """Full slabs are used where they are mapped, unless a GPU has them in pinned memory."""
        if self.tier == DISK or not self.host.pinned:
            self.host.adopt(parts)

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """What is on the device, and slabs that are no context's."""
        parts, meta = super().state()
        return {**parts, **self.host.state()}, meta

    def restore(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """What was on the device, and the slabs."""
        super().restore(parts, meta)
        self.host.restore(parts, stay=self.tier == DISK)
