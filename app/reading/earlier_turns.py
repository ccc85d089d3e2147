"""The states of a chat behind its earlier turns, so that a branch goes on from any of them with the same numbers.

The state behind the last turn is saved whole. Of the state behind each earlier turn only the rows are kept that the
next state lacks. Most tensors grow at their end, so that the later one begins with the earlier: nothing of it is kept.
From a window a few entries leave at the front, and these are kept. A tensor that was condensed is kept whole. `rewound`
goes back from each state to the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sessions import Part, StoreError, TensorFolder

if TYPE_CHECKING:
    from torch import Tensor

    from engine import LoadedParts

BEGINS = "earlier-"
"""Beginning of the names of the parts that hold the rows of earlier states."""
EARLIER = "earlier"
"""Name of the list in the saved facts that describes these parts: one entry for each turn, the last turn first."""
MOST_STARTS = 4
"""Places at which the beginning of a later tensor is looked for in an earlier one."""
_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}

Facts = list[list[int]]


def kept_turns(
    folder: TensorFolder, parts: Mapping[str, Part], meta: dict[str, Any], fingerprint: str
) -> tuple[dict[str, Part], list[dict[str, Any]]]:
    """Return the parts and entries (see EARLIER) of all earlier turns, for a save that replaces the present state.

    Together the parts take at most as many bytes as `parts`; the oldest turns are dropped first.

    Args:
        folder: the saved state of the chat.
        parts: the state behind the turn that has ended.
        meta: its facts, as `engine.Conversation.state` gives them.
        fingerprint: fingerprint of the context.
    """
    try:
        before, facts = folder.load(fingerprint, without=BEGINS)
        every, _ = folder.load(fingerprint, contents=False)
    except StoreError:  # nothing is saved yet, or it is damaged
        return {}, []
    conversation = facts["conversation"]
    turns, said = conversation["turns"], conversation.get("said", [])
    if turns < 1 or turns + 1 != meta["turns"] or meta["said"][: len(said)] != said:
        return {}, []
    own, places = lacking(before, {name: part.tensors for name, part in parts.items()})
    newest = {"turns": turns, "said": len(said), "memory": conversation["memory"], "places": places}
    found: dict[str, Part] = {}
    listed: list[dict[str, Any]] = []
    room = sum(tensor.nbytes for part in parts.values() for tensor in part.tensors.values())
    for entry in [newest, *facts.get(EARLIER, [])]:
        tensors = own if entry is newest else every.get(_part(entry["turns"]), {})
        room -= sum(tensor.nbytes for tensor in tensors.values())
        if room < 0:
            break
        listed.append(entry)
        if tensors:
            found[_part(entry["turns"])] = Part(tensors, sealed=True)
    return found, listed


def state_behind(
    parts: LoadedParts, facts: dict[str, Any], turns: int
) -> tuple[dict[str, Part], dict[str, Any], list[dict[str, Any]]] | None:
    """Return the state behind the first turns of a chat, its facts, and the entries of earlier turns; None if not kept.

    Args:
        parts: all saved parts of the chat.
        facts: its saved facts.
        turns: number of finished turns.

    Raises:
        KeyError, TypeError, ValueError, IndexError, RuntimeError: the facts contradict the parts.
    """
    listed = facts.get(EARLIER, [])
    found = {name: dict(tensors) for name, tensors in parts.items() if not name.startswith(BEGINS)}
    for number, entry in enumerate(listed):
        found = rewound(found, parts.get(_part(entry["turns"]), {}), entry["places"])
        if entry["turns"] == turns:
            said = facts["conversation"]["said"][: entry["said"]]
            meta = {"memory": entry["memory"], "turns": turns, "said": said}
            rest = listed[number + 1 :]
            names = [name for name in map(_part, (each["turns"] for each in rest)) if name in parts]
            older = {name: Part(dict(parts[name]), sealed=True) for name in names}
            return {**{name: Part(tensors) for name, tensors in found.items()}, **older}, meta, rest
    return None


def lacking(before: LoadedParts, after: LoadedParts) -> tuple[dict[str, Tensor], dict[str, Facts]]:
    """Return the tensors of a state that a later one lacks, named "part/tensor", and where it has the others.

    The places are, for each part, runs [number, dimension, rows]: the next `number` tensors, by name, end
    with the first `rows` rows of the later tensor along `dimension`. Without runs the part is kept whole.
    """
    own: dict[str, Tensor] = {}
    places: dict[str, Facts] = {}
    for part, tensors in before.items():
        later: Mapping[str, Tensor] = after.get(part, {})
        runs: Facts = []
        if later.keys() != tensors.keys():
            own |= {f"{part}/{name}": tensor for name, tensor in tensors.items()}
            places[part] = []
            continue
        for name, tensor in sorted(tensors.items()):
            dim, start, rows = _shared(tensor, later[name])
            if start or not rows:
                own[f"{part}/{name}"] = tensor.narrow(dim, 0, start).clone() if rows else tensor
            if runs and runs[-1][1:] == [dim, rows]:
                runs[-1][0] += 1
            else:
                runs.append([1, dim, rows])
        places[part] = runs
    return own, places


def rewound(after: LoadedParts, own: Mapping[str, Tensor], places: Mapping[str, Any]) -> dict[str, dict[str, Tensor]]:
    """Return the state before `after`. own, places: as `lacking` returned them."""
    found: dict[str, dict[str, Tensor]] = {}
    for part, runs in places.items():
        if not runs:
            begin = f"{part}/"
            found[part] = {name.removeprefix(begin): x for name, x in own.items() if name.startswith(begin)}
            continue
        each = ((dim, rows) for number, dim, rows in runs for _ in range(number))
        found[part] = {
            name: _joined(own.get(f"{part}/{name}"), tensor, dim, rows)
            for (name, tensor), (dim, rows) in zip(sorted(after[part].items()), each, strict=True)
        }
    return found


def _part(turns: int) -> str:
    return f"{BEGINS}{turns:05d}"


def _joined(own: Tensor | None, later: Tensor, dim: int, rows: int) -> Tensor:
    if not rows:
        if own is None:
            raise ValueError("a tensor of an earlier turn is missing")
        return own
    import torch

    shared = later.narrow(dim, 0, rows)
    return shared if own is None else torch.cat([own, shared], dim)


def _shared(before: Tensor, after: Tensor) -> tuple[int, int, int]:
    """Return a dimension, a row and a number of rows: from that row on, `before` has the first rows of `after`.

    The number is 0 if no beginning of `after` is an end of `before`.
    """
    import torch

    if before.dtype != after.dtype or before.dim() != after.dim() or before.dim() == 0 or before.numel() == 0:
        return 0, 0, 0
    bits = getattr(torch, _BITS[before.itemsize])
    old, new = before.view(bits), after.to(before.device).view(bits)
    for dim in (1, 0) if old.dim() > 1 else (0,):
        length = old.shape[dim]
        if old.movedim(dim, 0).shape[1:] != new.movedim(dim, 0).shape[1:] or not new.shape[dim]:
            continue
        for start in _starts(old, new, dim):
            rows = length - start
            if rows <= new.shape[dim] and torch.equal(old.narrow(dim, start, rows), new.narrow(dim, 0, rows)):
                return dim, start, rows
    return 0, 0, 0


def _starts(old: Tensor, new: Tensor, dim: int) -> list[int]:
    """Return the first rows of `old` that equal the first row of `new`, with 0 tried first of all."""
    import torch

    if torch.equal(old.narrow(dim, 0, 1), new.narrow(dim, 0, 1)):
        return [0]
    alike = (old == new.narrow(dim, 0, 1)).movedim(dim, 0).reshape(old.shape[dim], -1).all(1)
    found: list[int] = alike.nonzero().flatten().tolist()
    return found[:MOST_STARTS]
