"""Check that saved facts agree with each other before memory is allocated by them."""

from datetime import date
from typing import TYPE_CHECKING, Any

from app.reading.token_stream import PART
from sessions import ContextRow, StoreCorrupt

if TYPE_CHECKING:
    from torch import Tensor

    from engine import LoadedParts

CLOCK = ("done", "begun", "chunk")  # counts; other clock facts are seconds


def check_context(row: ContextRow, parts: "LoadedParts", meta: dict[str, Any]) -> None:
    """Check that tokens, stretches and counts of a context agree.

    Raises:
        StoreCorrupt: they do not.
    """
    try:
        _check_context(parts, meta)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StoreCorrupt(
            f"What is saved of context {row.id} contradicts itself ({error}): delete {row.id}, then read its documents "
            "again (they are kept)."
        ) from error


def _check_context(parts: "LoadedParts", meta: dict[str, Any]) -> None:
    ids, starts = parts[PART]["ids"], parts[PART]["starts"]
    total = len(ids)
    if ids.dim() != 1 or ids.shape != starts.shape or ids.is_floating_point() or starts.is_floating_point():
        raise ValueError(f"{total} tokens, {len(starts)} places of them")
    if total and (int(ids.min()) < 0 or int(starts.min()) < 0):
        raise ValueError("a token or its place is negative")
    for part in parts.values():
        for name, tensor in part.items():
            if name.rpartition(".")[2] == "source" and not _are_places(tensor, total):
                raise ValueError(f"places outside its {total} tokens")
    first = 0
    for each in meta["stretches"]:
        if each["first"] != first or not first <= each["end"] <= total or not isinstance(each["document_id"], str):
            raise ValueError("its documents do not follow one another")
        if set(each) - {"left_out"} != {"document_id", "first", "end", "characters"} or count(each["characters"]) < 0:
            raise ValueError("a document has no length")
        edges = [count(edge) for low_high in each.get("left_out", ()) for edge in low_high]
        inside = not edges or 0 <= edges[0] <= edges[-1] <= each["characters"]
        if edges != sorted(edges) or len(edges) % 2 or not inside:
            raise ValueError("what is left out of a document is no part of it")
        first = count(each["end"])
    if first != total:
        raise ValueError(f"documents of {first} tokens, where there are {total}")
    prefix = meta.get("prefix", [])
    if not isinstance(prefix, list) or not all(isinstance(each, int) for each in prefix):
        raise ValueError("what stands before the text is no list of tokens")
    if "day" in meta:
        date.fromisoformat(meta["day"])
    most = len(prefix) + total
    for name in ("context", "reader"):
        facts = meta[name]
        if facts is None:
            continue
        if count(facts["source_tokens"]) != total:
            raise ValueError(f"a text of {facts['source_tokens']} tokens, where there are {total}")
        check_memory(facts["memory"], most if "prefix" in meta else None)
        clock = facts.get("reader", {})
        if any(not 0 <= count(clock[key]) <= 1 << 40 for key in CLOCK if key in clock and clock[key] != 0.0):
            raise ValueError("a reading beyond its end")
        if any(not isinstance(value, int | float) or isinstance(value, bool) for value in clock.values()):
            raise ValueError("a clock that is none")


def _are_places(source: "Tensor", total: int) -> bool:
    """Return whether these are positions in a text of so many tokens; -1 stands for a token that is not from it."""
    if source.is_floating_point() or source.dtype.is_complex or source.dtype.itemsize == 1:
        return False
    return not source.numel() or (int(source.min()) >= -1 and int(source.max()) < total)


def check_conversation(meta: dict[str, Any]) -> None:
    """Check the types and ranges of a saved conversation's facts.

    Raises:
        ValueError, KeyError, TypeError: one is wrong.
    """
    facts, turn = meta["conversation"], meta["turn"]
    check_memory(facts["memory"], None)
    said = facts.get("said", [])
    if count(facts["turns"]) < 0 or not all(isinstance(each, int) for one in said for each in one):
        raise ValueError("what was said is no list of tokens")
    kinds = {"id": str, "answer": str, "sources": list, "measurements": dict}
    if any(not isinstance(turn[name], kind) for name, kind in kinds.items()):
        raise ValueError("its last turn is none")


def check_memory(facts: Any, seen: int | None) -> None:
    """Check that a memory's facts are counts, or lists and objects of counts.

    Args:
        facts: the facts.
        seen: the most tokens that it can have seen; None if unknown.

    Raises:
        ValueError, TypeError: one is wrong.
    """
    if not isinstance(facts, dict) or (seen is not None and not 0 <= count(facts.get("seen", 0)) <= seen):
        raise ValueError("a memory of more than there was to read")
    waiting = list(facts.values())
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list):
            waiting += each.values() if isinstance(each, dict) else each
        elif isinstance(each, int | float) and not abs(each) < 1 << 40:
            raise ValueError(f"a number of {each}")


def count(value: Any) -> int:
    """Return the value if it is a whole number.

    Raises:
        TypeError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{str(value)[:40]!r} is no number of anything")
    return value
