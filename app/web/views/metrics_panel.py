"""The gauge of this computer: the memory of a document, speeds, and resources of this process."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.formatting import byte_size, duration, percent, short_seconds, speed, whole_percent
from app.language import figure, t
from app.web.views.markup import bar, esc, sparkline, thin

TIERS = {
    "device": ("At hand", "What the model looks at directly: on the graphics card, or in memory where there is none"),
    "host": ("In memory", "In the memory of this computer"),
    "disk": ("On disk", "In files: what is needed comes into memory, and stays while there is room"),
}


@dataclass(frozen=True)
class Latency:
    """Times to the first word by the length of the text.

    points: tokens of a text, and the usual time of its answers; the shortest text first.
    reading_speed: tokens per second of reading.
    """

    points: Sequence[tuple[int, float]]
    reading_speed: float


@dataclass(frozen=True)
class Metrics:
    """The numbers of the panel. Histories are oldest first.

    full_bytes: bytes that keys and values of the whole text take with full attention; 0 if unknown.
    usage: entries and bytes by tier.
    open_bytes: bytes of all open contexts, by tier.
    """

    budget: int | None = None
    full_bytes: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict)
    latency: Latency | None = None
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
    return f'<div class="live">{_speeds(metrics)}{_latency(metrics)}{_machine(metrics)}{_plots(metrics)}</div>'


def gauge_label(metrics: Metrics) -> str:
    """Return the line of the closed gauge: the memory of the document, and the time to the first word."""
    said = [t("This computer")]
    if metrics.usage:
        said.append(byte_size(sum(metrics.usage["bytes"].values())))
    if metrics.first_token_sec is not None:
        said.append(t("first word after {time}", time=short_seconds(metrics.first_token_sec)))
    return " · ".join(said)


def kept(metrics: Metrics) -> str:
    """Return the top of the panel: how much is read, how much of it the model looks at, and what that takes."""
    if not metrics.usage:
        said = t("Nothing of it has been read yet.") if metrics.tokens else t("No document is open.")
        return (
            f'<div class="live"><section><h2>{t("Memory of the document")}</h2>'
            f'<p class="quiet">{said}</p></section></div>'
        )
    entries, size = metrics.usage["entries"], metrics.usage["bytes"]
    main = _idea(metrics, entries, sum(size.values()))
    most = max(size.values()) or 1
    rows = "".join(
        f'<tr><th scope="row" title="{esc(t(hint))}"><i class="dot {tier}"></i>{t(name)}</th>'
        f"<td>{figure(f'{entries[tier]:,}')}</td>"
        f'<td>{byte_size(size[tier])}</td><td class="cell-bar">'
        f"{bar(size[tier] / most, _named(t(name), byte_size(size[tier])), tier)}</td></tr>"
        for tier, (name, hint) in TIERS.items()
        if entries[tier] or size[tier] or tier != "disk"
    )
    return (
        f'<div class="live"><section><h2>{t("Memory of the document")}</h2>{main}<table><thead><tr>'
        f'<th scope="col">{t("Where")}</th>'
        f'<th scope="col" title="{t("Tokens that are remembered, in each layer and head")}">{t("Tokens")}</th>'
        f'<th scope="col" title="{t("Memory that is set aside, used or not")}">{t("Size")}</th>'
        f'<th><span class="sr">{t("Share")}</span></th></tr></thead><tbody>{rows}</tbody></table></section></div>'
    )


def _idea(metrics: Metrics, entries: Mapping[str, int], taken: int) -> str:
    """Return what the product is for, in three lines: what is read, what the model looks at, and what that takes.

    Args:
        metrics: the numbers of the panel.
        entries: tokens by tier.
        taken: bytes of the memory in all tiers.
    """
    device, read = entries["device"], metrics.tokens_read or metrics.tokens
    share = min(1.0, device / read) if read else 1.0
    part = percent(read / metrics.tokens) if metrics.tokens else "–"
    lines = [
        f"<p>{t('{n} of {n_all} tokens of the text are read ({share}).', n=read, n_all=metrics.tokens, share=part)}</p>"
        + bar(read / metrics.tokens if metrics.tokens else 0.0, t("{share} read", share=part), "wide")
    ]
    looks = t("For each word of an answer the model looks at")
    if share < 1 and not entries["host"] + entries["disk"]:
        chosen = t("tokens: the {share} of what was read that it kept", share=percent(share))
    elif share < 1:
        chosen = t("tokens: {share} of what was read, chosen anew for each question", share=percent(share))
    else:
        chosen = t("tokens: all that was read, and the chat")
    count = f'<strong id="kv-entries">{figure(f"{device:,}")}</strong> <span>{chosen}</span>'
    at_hand = t("{share} of the text is at hand", share=percent(share))
    lines.append(f'<p>{looks}</p><p class="big">{count}</p>{bar(share, at_hand, "wide budget")}')
    takes = t("It takes {size}.", size=byte_size(taken))
    if metrics.full_bytes > taken:
        takes = t(
            "It takes {size}; full attention to the whole text would take {whole}, and be slower with every page.",
            size=byte_size(taken),
            whole=byte_size(metrics.full_bytes),
        )
    return f'<div class="idea">{"".join(lines)}<p>{takes}</p></div>'


def _named(name: str, value: str) -> str:
    return t("{name}: {value}", name=name, value=value)


def _figure(name: str, value: str, title: str) -> str:
    return f'<div title="{esc(title)}"><dt>{esc(name)}</dt><dd>{esc(value)}</dd></div>'


def _speeds(metrics: Metrics) -> str:
    none = "–"
    read = figure(f"{metrics.tokens_read:,}") if metrics.tokens_read else none
    figures = [
        _figure(t("Tokens read"), read, t("of {n} tokens", n=metrics.tokens)),
        _figure(
            t("Reading"),
            f"{speed(metrics.reading_speed)} tok/s" if metrics.reading_speed else none,
            t("Tokens per second"),
        ),
        _figure(
            t("First word"),
            none if metrics.first_token_sec is None else short_seconds(metrics.first_token_sec),
            t("From the last question to the first word of its answer; the first question also opens the document"),
        ),
        _figure(
            t("Answering"),
            none if metrics.answer_speed is None else f"{speed(metrics.answer_speed)} tok/s",
            t("Tokens per second of the last answer"),
        ),
    ]
    return f'<section><h2>{t("Speed")}</h2><dl class="figures-grid">{"".join(figures)}</dl></section>'


def _latency(metrics: Metrics) -> str:
    """Return the times to the first word against the length of the text, with the time to read it all again."""
    if metrics.latency is None:
        return ""
    points, rate = metrics.latency.points, metrics.latency.reading_speed
    longest, width, height = max(tokens for tokens, _ in points), 240.0, 72.0
    again = longest / rate
    low, high = min(0.1, *(sec for _, sec in points)), max(again, *(sec for _, sec in points))

    def x(tokens: float) -> float:
        return 4 + (width - 8) * tokens / longest

    def y(seconds: float) -> float:  # by the logarithm
        share = math.log(max(seconds, low) / low) / max(1e-9, math.log(high / low))
        return 4 + (height - 8) * (1 - share)

    steps = [longest * step / 24 for step in range(25)]
    reading = " ".join(f"{x(tokens):.1f},{y(tokens / rate):.1f}" for tokens in steps)
    usual = sorted(sec for _, sec in points)[len(points) // 2]
    dots = "".join(
        f'<circle cx="{x(tokens):.1f}" cy="{y(sec):.1f}" r="3"><title>'
        f"{_named(t('{n} tokens', n=tokens), short_seconds(sec))}</title></circle>"
        for tokens, sec in points
    )
    label = t(
        "Time to the first word for texts of up to {n} tokens: {time} as a rule. Reading {n} tokens again for each "
        "question would take {whole}.",
        n=longest,
        time=short_seconds(usual),
        whole=duration(again),
    )
    reads = t("if it read all of it again: {time}", time=duration(again))
    rule = t("as a rule: {time}", time=short_seconds(usual))
    up, across = (short_seconds(high), short_seconds(low)), t("{n} tokens", n=longest)
    return (
        f'<section><h2>{t("Seconds to the first word, by the length of the text")}</h2><figure class="latency">'
        f'<div class="axes"><span class="up">{up[0]}</span><span class="up low">{up[1]}</span>'
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{esc(label)}">'
        f'<polyline class="again" points="{reading}"/>'
        f'<line class="usual" x1="0" x2="{width:.0f}" y1="{y(usual):.1f}" y2="{y(usual):.1f}"/>{dots}</svg>'
        f'<span class="across">0</span><span class="across">{across}</span></div>'
        f'<figcaption><span><i class="key again"></i>{reads}</span><span><i class="key usual"></i>{rule}</span>'
        "</figcaption></figure></section>"
    )


def _machine(metrics: Metrics) -> str:
    process, gpu = metrics.memory.get("process_bytes", 0), metrics.memory.get("gpu_bytes", 0)
    mapped = metrics.memory.get("mapped_bytes", 0)
    rows = _figure(
        t("Process"),
        byte_size(process),
        t(
            "Memory of this server. {size} of it are files, documents among them, that are mapped into memory as they "
            "are looked at: the system takes that back when others need the room.",
            size=byte_size(mapped),
        ),
    )
    if gpu:
        rows += _figure("GPU", byte_size(gpu), t("Allocated on the GPU"))
    else:
        rows += _figure("GPU", t("none"), t("The model runs on the processor"))
    share = process / metrics.memory_total if metrics.memory_total else 0.0
    line, opened = bar(share, t("{share} of the machine's memory", share=whole_percent(share)), "thin"), ""
    if metrics.open_limit:
        there = {"device": "{size} in GPU", "host": "{size} in memory"}
        held = " · ".join(
            t(name, size=byte_size(metrics.open_bytes[tier]))
            for tier, name in there.items()
            if metrics.open_bytes.get(tier)
        ) or t("none")
        figure = _figure(
            t("Open documents, at most {size}", size=byte_size(metrics.open_limit)),
            held,
            t("Documents that are ready to be asked; the least recently used are put away first"),
        )
        opened = f'<dl class="figures-grid">{figure}</dl>'
    return (
        f'<section><h2>{t("This machine")}</h2><dl class="figures-grid">{rows}</dl>{line}{opened}'
        f'<p class="quiet">{esc(metrics.model)}</p></section>'
    )


def _plots(metrics: Metrics) -> str:
    plots = [
        _plot(t("Tokens kept"), metrics.entries_history, lambda value: figure(f"{value:,.0f}"), "device"),
        _plot(t("Reading, tokens/s"), metrics.reading_history, speed, "read"),
        _plot(t("First word, by question"), metrics.first_token_history, short_seconds, "first"),
        _plot(t("Answering, tokens/s, by question"), metrics.answer_history, speed, "answer"),
        _plot(t("Process memory"), metrics.memory_history, byte_size, "memory"),
    ]
    shown = "".join(plot for plot in plots if plot)
    return f'<section><h2>{t("History")}</h2><div class="plots">{shown}</div></section>' if shown else ""


def _plot(name: str, values: Sequence[float], text: Any, kind: str) -> str:
    if len(values) < 2:
        return ""
    few = thin(values)
    most = text(max(few))
    label = t(
        "{name}: from {first} to {last}, at most {most}", name=name, first=text(few[0]), last=text(few[-1]), most=most
    )
    return (
        f"<figure>{sparkline(few, label, kind)}<figcaption><span>{esc(name)}</span>"
        f"<b>{esc(text(values[-1]))}</b> <span>{t('at most {most}', most=esc(most))}</span></figcaption></figure>"
    )
