"""The metrics panel: contents of the memory, speeds, and resources of this process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.formatting import byte_size, of_budget, percent, short_seconds, speed
from app.reading.memory_map import Remembered, tenths
from app.web.views.markup import bar, esc, sparkline, strip, thin

TIERS = {
    "device": ("Device", "Where the model computes"),
    "host": ("Host", "In the machine's memory"),
    "disk": ("Disk", "In the context's files: what is looked at comes into memory, and stays while there is room"),
}


@dataclass(frozen=True)
class Metrics:
    """The numbers of the panel. Histories are oldest first.

    usage: entries and bytes by tier.
    titles: words before a place, by document.
    open_bytes: bytes of all open contexts, by tier.
    """

    budget: int | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    memory_map: Sequence[Remembered] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    tokens_read: int = 0
    tokens: int = 0
    reading_speed: float = 0.0
    first_token_sec: float | None = None
    answer_speed: float | None = None
    memory: Mapping[str, int] = field(default_factory=dict)
    memory_total: int = 0
    open_bytes: Mapping[str, int] = field(default_factory=dict)
    open_limit: int = 0
    model: str = ""
    reading_history: Sequence[float] = ()
    entries_history: Sequence[float] = ()
    first_token_history: Sequence[float] = ()
    answer_history: Sequence[float] = ()
    memory_history: Sequence[float] = ()


def panel(metrics: Metrics) -> str:
    """Return the lower part of the panel: speeds, this machine and history."""
    return f'<div class="live">{_speeds(metrics)}{_machine(metrics)}{_plots(metrics)}</div>'


def kept(metrics: Metrics) -> str:
    """Return the top of the panel: entries and bytes of the memory."""
    if not metrics.usage:
        return (
            '<div class="live"><section><h2>KV memory</h2><p class="quiet">Nothing is open. Read something, or choose '
            "a context.</p></section></div>"
        )
    entries, size = metrics.usage["entries"], metrics.usage["bytes"]
    device = entries["device"]
    of = of_budget(device, metrics.budget)
    main = f'<p class="big"><strong id="kv-entries">{device:,}</strong> <span>{of}</span></p>'
    full = bar(device / metrics.budget, f"{device:,} {of} on the device", "wide budget") if metrics.budget else ""
    most = max(size.values()) or 1
    rows = "".join(
        f'<tr><th scope="row" title="{esc(told)}"><i class="dot {tier}"></i>{name}</th><td>{entries[tier]:,}</td>'
        f'<td>{byte_size(size[tier])}</td><td class="cell-bar">'
        f"{bar(size[tier] / most, f'{name}: {byte_size(size[tier])}', tier)}</td></tr>"
        for tier, (name, told) in TIERS.items()
        if entries[tier] or size[tier] or tier != "disk"
    )
    return (
        f'<div class="live"><section><h2>KV memory</h2>{main}{full}<table><thead><tr><th scope="col">Tier</th>'
        f'<th scope="col" title="Per KV head and layer">Entries</th><th scope="col">Bytes</th>'
        f'<th><span class="sr">Share</span></th></tr></thead><tbody>{rows}</tbody></table></section></div>'
    )


def map_of(metrics: Metrics) -> str:
    """Return the map of remembered text, from beginning to end; empty if everything is remembered, or nothing is open.

    It is long and changes only with the context, so it is a component of its own.
    """
    if not (metrics.memory_map and metrics.usage):
        return ""
    pieces = []
    for each in metrics.memory_map:
        place = metrics.titles.get(each.document, "") + each.place
        pieces.append((f"From {place}: {percent(each.share)} kept", each.tokens, each.share))
    shares = [each.share for each in metrics.memory_map]
    label = f"Kept of each tenth of the text: {', '.join(map(percent, tenths(metrics.memory_map)))}"
    return (
        f'<div class="live"><figure>{strip(pieces, label)}<figcaption><span>Kept, from beginning to end</span>'
        f"<b>{percent(min(shares))} to {percent(max(shares))}</b></figcaption></figure></div>"
    )


def _figure(name: str, value: str, title: str) -> str:
    return f'<div title="{esc(title)}"><dt>{esc(name)}</dt><dd>{esc(value)}</dd></div>'


def _speeds(metrics: Metrics) -> str:
    none = "–"
    read = f"{metrics.tokens_read:,}" if metrics.tokens_read else none
    figures = [
        _figure("Tokens read", read, f"of {metrics.tokens:,}"),
        _figure(
            "Reading", f"{speed(metrics.reading_speed)} tok/s" if metrics.reading_speed else none, "Tokens per second"
        ),
        _figure(
            "First token",
            none if metrics.first_token_sec is None else short_seconds(metrics.first_token_sec),
            "From the last question to the first token of its answer",
        ),
        _figure(
            "Answering",
            none if metrics.answer_speed is None else f"{speed(metrics.answer_speed)} tok/s",
            "Tokens per second of the last answer",
        ),
    ]
    return f'<section><h2>Speed</h2><dl class="figures-grid">{"".join(figures)}</dl></section>'


def _machine(metrics: Metrics) -> str:
    process, gpu = metrics.memory.get("process_bytes", 0), metrics.memory.get("gpu_bytes", 0)
    mapped = metrics.memory.get("mapped_bytes", 0)
    rows = _figure(
        "Process",
        byte_size(process),
        f"Resident memory of this server. {byte_size(mapped)} of it are files, contexts among them, that are mapped "
        "into memory as they are looked at: the system takes that back when others need the room.",
    )
    if gpu:
        rows += _figure("GPU", byte_size(gpu), "Allocated on the GPU")
    else:
        rows += _figure("GPU", "none", "The model runs on the processor")
    share = process / metrics.memory_total if metrics.memory_total else 0.0
    line, opened = bar(share, f"{share:.0%} of the machine's memory", "thin"), ""
    if metrics.open_limit:
        there = {"device": "GPU", "host": "memory"}
        held = (
            " · ".join(
                f"{byte_size(metrics.open_bytes[tier])} in {name}"
                for tier, name in there.items()
                if metrics.open_bytes.get(tier)
            )
            or "none"
        )
        figure = _figure(
            f"Open contexts, at most {byte_size(metrics.open_limit)}",
            held,
            "Contexts that are ready to be asked; the least recently used are put away first",
        )
        opened = f'<dl class="figures-grid">{figure}</dl>'
    return (
        f'<section><h2>This machine</h2><dl class="figures-grid">{rows}</dl>{line}{opened}'
        f'<p class="quiet">{esc(metrics.model)}</p></section>'
    )


def _plots(metrics: Metrics) -> str:
    plots = [
        _plot("Entries kept", metrics.entries_history, lambda value: f"{value:,.0f}", "device"),
        _plot("Reading, tokens/s", metrics.reading_history, speed, "read"),
        _plot("First token", metrics.first_token_history, short_seconds, "first"),
        _plot("Answering, tokens/s", metrics.answer_history, speed, "answer"),
        _plot("Process memory", metrics.memory_history, byte_size, "memory"),
    ]
    shown = "".join(plot for plot in plots if plot)
    return f'<section><h2>History</h2><div class="plots">{shown}</div></section>' if shown else ""


def _plot(name: str, values: Sequence[float], text: Any, kind: str) -> str:
    if len(values) < 2:
        return ""
    few = thin(values)
    label = f"{name}: from {text(few[0])} to {text(few[-1])}, at most {text(max(few))}"
    return (
        f"<figure>{sparkline(few, label, kind)}<figcaption><span>{esc(name)}</span>"
        f"<b>{esc(text(values[-1]))}</b></figcaption></figure>"
    )
