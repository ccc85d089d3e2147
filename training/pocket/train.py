"""Trains the pocket model: `train(PocketSettings(...))`, or `python -m training.pocket --help`.

A run is a sequence of steps. The rows of step n depend only on the seed and n, so a resumed run ends where an
uninterrupted one does (bit for bit if its length is given in tokens). The shipped weights are a running average of the
trained ones. It replaces a long learning-rate decay, and any checkpoint can be shipped.
"""

import functools
import json
import logging
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaConfig

from engine import SettingsError
from engine.signals import asked_to_stop
from training import checkpoint
from training.pocket import workers
from training.pocket.documents import Builder
from training.pocket.export import check_replaceable, export
from training.pocket.ladder import Mix, Stage, ladder, last_stages
from training.pocket.network import PocketNetwork, Reading, load_network
from training.pocket.optimiser import Optimiser
from training.pocket.prepare import prepare
from training.pocket.settings import PocketSettings
from training.room import check_room
from training.scoring import scored
from training.stopping import PATIENCE, Stopped

log = logging.getLogger(__name__)
AVERAGE = 0.997  # decay of the running average per step
DECAY = 0.1  # with less, queries and keys grow until every softmax saturates and learning stops
FALL = 0.8  # part of a run with a falling rate: answers improve only then
SHAPE = {
    "vocab_size": "vocabulary",
    "hidden_size": "width",
    "intermediate_size": "inner",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_size",
    "max_position_embeddings": "window",
}  # shape of a model: transformers' name -> setting
LOOK_BACK = 1.5  # lowers the first heads' scores by two nats one token off their distance


@dataclass(frozen=True)
class Progress:
    """One line of the loss log: losses in nats a token, share of right answers, seconds of work."""

    step: int
    tokens: int
    seconds: float
    fraction: float
    stage: str
    kind: str
    loss: float
    language_loss: float
    accuracy: float
    rate: float

    def in_words(self) -> str:
        """Return a line for people."""
        return (
            f"{self.fraction:6.1%} {self.stage} {self.kind} step {self.step}, {self.tokens / 1e6:.2f} M tokens, "
            f"{self.tokens / max(self.seconds, 1e-9):,.0f} tokens/s, loss {self.loss:.3f}, language "
            f"{self.language_loss:.3f}, right {self.accuracy:.1%}"
        )


@dataclass
class Batch:
    """Rows of one step: ids, weights, positions [B, T], and how to attend."""

    ids: Tensor
    weights: Tensor
    positions: Tensor | None
    reading: Reading | None


def model_config(settings: PocketSettings, builder: Builder) -> LlamaConfig:
    """Return the stock Llama config of a run."""
    shape = {key: getattr(settings, name) for key, name in SHAPE.items()} | {"vocab_size": len(builder.tokenizer)}
    return LlamaConfig(
        **shape,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        bos_token_id=builder.bos,
        eos_token_id=builder.end,
        pad_token_id=builder.pad,
        attention_bias=False,
        initializer_range=0.02,
    )


def build_network(settings: PocketSettings, builder: Builder) -> PocketNetwork:
    """Return new weights from the seed; residual outputs start at zero, which suits the optimiser.

    Three heads of the first layer start by attending one, two and three tokens back, as every look-up needs this and it
    is learned slowest. For that, one dimension of all embeddings starts at a constant, and queries made from it are
    rotated against the keys by the RoPE angle of the distance.
    """
    torch.manual_seed(settings.seed)
    network = PocketNetwork(model_config(settings, builder))
    for layer in network.llama.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    with torch.no_grad():
        network.llama.model.embed_tokens.weight[:, 0] = 0.06
        attention, half = network.llama.model.layers[0].self_attn, settings.head_size // 2
        turning = (torch.arange(half) < 6) * LOOK_BACK  # slow frequencies cannot tell neighbours apart
        keys = attention.k_proj.weight.view(settings.kv_heads, 2, half, -1)
        keys[:, 0, :, 0], keys[:, 1, :, 0] = turning, 0.0
        queries = attention.q_proj.weight.view(settings.heads, 2, half, -1)
        groups = settings.heads // settings.kv_heads
        for distance, head in enumerate(range(0, settings.heads, groups), start=1):
            queries[head, 0, :, 0] = turning * (network.inverse * distance).cos()
            queries[head, 1, :, 0] = -turning * (network.inverse * distance).sin()
    return network


def make_batch(builder: Builder, mix: Mix, rng: random.Random, window: int, scale: float) -> Batch:
    """Return the rows of one step."""
    rows = [builder.build(rng, mix.recipe) for _ in range(max(1, round(mix.rows * scale)))]
    longest = max(row.used for row in rows)
    ids = torch.stack([torch.from_numpy(row.ids[:longest]) for row in rows])
    weights = torch.stack([torch.from_numpy(row.weights[:longest]) for row in rows])
    positions, reading = None, None
    if mix.far:
        near = min(rng.choice((64, 128, 192, 256, 380)), longest // 2)
        begins, ends = torch.tensor([(row.document, row.used) for row in rows]).T
        reading = Reading(near, 4, rng.choice((near + 3, 255, 383, 511)), begins, ends)
    elif rng.random() < mix.gaps:
        positions = torch.stack([_gaps(rng, longest, row.document, window) for row in rows])
    return Batch(ids, weights, positions, reading)


def _gaps(rng: random.Random, length: int, document: int, window: int) -> Tensor:
    """Return positions 0 to at most window-1 with up to three jumps in the document: long distances in short rows."""
    room = max(0, window - length)
    jumps = torch.zeros(length, dtype=torch.int64)
    for _ in range(rng.randint(1, 3)):
        jump = rng.randint(0, room // 2)
        room -= jump
        jumps[rng.randint(1, max(1, document - 1))] += jump
    return torch.arange(length) + jumps.cumsum(0)


def losses(network: PocketNetwork, batch: Batch, autocast: bool = False) -> tuple[Tensor, Tensor, float]:
    """Return mean loss of answer tokens, mean loss of language positions, and accuracy of short answers."""
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        hidden = network(batch.ids, batch.positions, batch.reading)
    embedding = network.llama.model.embed_tokens.weight
    return scored(hidden, batch.ids, batch.weights, lambda chosen: F.linear(chosen, embedding))


def stage_at(stages: tuple[Stage, ...], fraction: float) -> Stage:
    """Return the stage after `fraction` of a run's length."""
    total = sum(stage.share for stage in stages)
    for stage in stages:
        fraction -= stage.share / total
        if fraction < 0:
            return stage
    return stages[-1]


class Run:
    """A training run: network, average, optimiser and counters. `step` makes one step."""

    def __init__(self, settings: PocketSettings, builder: Builder, stages: tuple[Stage, ...]) -> None:
        self.settings, self.builder, self.stages = settings, builder, stages
        self.network = load_network(settings.start) if settings.start else build_network(settings, builder)
        self.optimiser = Optimiser(self.network, settings.muon_rate, settings.adam_rate, DECAY)
        self.average = {name: p.detach().clone() for name, p in self.network.named_parameters()}
        self.steps, self.tokens, self.seconds, self.clock = 0, 0, 0.0, time.monotonic()
        self.stopping = False  # a worker was asked to stop; all workers see it in the same step

    @property
    def fraction(self) -> float:
        """Share of the run that is done, 0 to 1."""
        if self.settings.tokens > 0:
            return self.tokens / self.settings.tokens
        return self.seconds / (self.settings.minutes * 60)

    @property
    def basis(self) -> dict[str, Any]:
        """Values that a continuation must share, by readable names."""
        names = ("seed", "start", "workers", "scale")
        shape = self.network.llama.config.to_dict()
        told = {name: str(getattr(self.settings, name)) for name in names}
        return {"kind": "pocket", **told, **{name: shape[key] for key, name in SHAPE.items()}}

    def step(self, asked: bool = False) -> Progress:
        """Make one optimiser step and return its log line. `asked`: this worker was asked to stop after it."""
        stage = stage_at(self.stages, self.fraction)
        # all workers take the same kind of rows, so that none waits for longer rows
        draw = f"{self.settings.seed}/{self.steps}"
        mix = random.Random(draw).choices(stage.mixes, [m.weight for m in stage.mixes])[0]
        rng = random.Random(f"{draw}/{workers.rank()}")
        batch = make_batch(self.builder, mix, rng, self.settings.window, self.settings.scale)
        answer, plain, accuracy = losses(self.network, batch, self.settings.autocast)
        torch.autograd.backward([answer + stage.language * plain])
        # warm up, hold at the stage's rate, fall
        tokens = self._meet(batch.ids.numel(), asked)
        rate = stage.rate * min(1.0, (self.steps + 1) / 60) * min(1.0, 0.02 + (1 - self.fraction) / FALL)
        self.optimiser.step(rate)
        with torch.no_grad():
            keep = min(AVERAGE, (1 + self.steps) / (10 + self.steps))
            for name, parameter in self.network.named_parameters():
                self.average[name].lerp_(parameter, 1 - keep)
        self.steps += 1
        self.tokens += tokens
        kind = f"{mix.recipe.mode} {mix.recipe.length}" + (" far" if mix.far else " gaps" if mix.gaps else "")
        return Progress(
            self.steps,
            self.tokens,
            self.seconds,
            self.fraction,
            stage.name,
            kind,
            answer.item(),
            plain.item(),
            accuracy,
            rate,
        )

    def _meet(self, tokens: int, asked: bool) -> int:
        """Average gradients over the workers, agree on time and stopping, and return the tokens of all."""
        now = time.monotonic()
        count = workers.size()
        shared = torch.tensor([float(tokens), (now - self.clock) / count, float(asked)])
        self.clock = now
        gradients = [p.grad for p in self.optimiser.parameters if p.grad is not None]
        workers.total([*gradients, shared])
        if count > 1:
            for gradient in gradients:
                gradient.div_(count)
        self.seconds += float(shared[1])
        self.stopping = bool(shared[2] > 0)
        return int(shared[0])

    def state(self) -> dict[str, Any]:
        """Return everything that a continuation needs."""
        return {
            "basis": self.basis,
            "network": dict(self.network.named_parameters()),
            "average": self.average,
            "optimiser": self.optimiser.state_dict(),
            "steps": self.steps,
            "tokens": self.tokens,
            "seconds": self.seconds,
        }

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        for name, parameter in self.network.named_parameters():
            parameter.copy_(state["network"][name])
            self.average[name].copy_(state["average"][name])
        self.optimiser.load_state_dict(state["optimiser"])
        self.steps, self.tokens, self.seconds = state["steps"], state["tokens"], state["seconds"]

    def averaged(self) -> PocketNetwork:
        """Return a copy of the network with averaged weights, blended with the start weights if there are any."""
        start = self.settings.start
        network = load_network(start) if start else PocketNetwork(self.network.llama.config)
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.lerp_(self.average[name], self.settings.blend if start else 1.0)
        return network


def train(
    settings: PocketSettings,
    progress: Callable[[Progress], None] | None = None,
    stages: tuple[Stage, ...] | None = None,
) -> Path:
    """Train, save checkpoints, and write the model to `settings.out_dir`.

    Args:
        settings: see `PocketSettings`.
        progress: called after every step.
        stages: stages other than the shipped model's.

    Returns:
        Folder of the finished model.

    Raises:
        DataMissing: the books are not in `settings.data_dir`.
        SettingsError: `start` is not a pocket model, `resume` without a checkpoint or with one of another run, or
            `out_dir` holds something other than a pocket model.
        Stopped: by a signal; the checkpoint has every step made by then.
    """
    path = checkpoint.place(settings.work_dir, settings.resume)
    check_replaceable(settings.out_dir)
    stages = stages or (last_stages() if settings.start else ladder())
    _check(settings, stages, path)
    stops: list[Stopped] = []

    def report(said: Progress | Stopped) -> None:
        if isinstance(said, Stopped):
            stops.append(said)
        elif progress:
            progress(said)

    work = functools.partial(_work, settings, stages)
    if settings.workers == 1:
        work(report)
    else:
        workers.launch(settings.workers, work, report)
    if stops:
        raise stops[0]
    return settings.out_dir


def _check(settings: PocketSettings, stages: tuple[Stage, ...], path: Path) -> None:
    """Check that workers can train with these settings, and can resume from the checkpoint at `path` if asked to.

    Raises:
        EngineError, DataMissing: see `train`.
    """
    if settings.start is None:
        check_room(settings.weights * settings.workers, torch.device("cpu"), "A network of that shape, in each worker,")
    materials = prepare(settings)
    if settings.start is None and len(materials.tokenizer) > settings.vocabulary:
        raise SettingsError(
            f"The prose in {settings.work_dir} was tokenised with a vocabulary of {len(materials.tokenizer)}, and not "
            f"of {settings.vocabulary}: give another --work-dir, or that --vocabulary."
        )
    run = Run(settings, materials.builder(), stages)
    if settings.resume:
        checkpoint.load_run(path, run.basis)


def _work(settings: PocketSettings, stages: tuple[Stage, ...], report: Callable[[Progress | Stopped], None]) -> None:
    """Run one worker; the first one logs, saves and exports."""
    materials = prepare(settings)
    run = Run(settings, materials.builder(), stages)
    path = checkpoint.place(settings.work_dir, settings.resume)
    first = workers.rank() == 0
    if settings.resume:
        run.restore(checkpoint.load(path))
        log.info("resumed at step %d, %.1f M tokens", run.steps, run.tokens / 1e6)
    saved = time.monotonic()
    log_path = settings.work_dir / "log.jsonl"
    if first:
        checkpoint.shorten_log(log_path, run.steps)
    reply = PATIENCE if workers.size() == 1 else ""  # the launching process prints it for all
    with open(log_path if first else os.devnull, "a", encoding="utf-8") as lines, asked_to_stop(reply) as asked:
        while run.fraction < 1 and not run.stopping:
            line = run.step(asked() or workers.stop_asked())
            if not first:
                continue
            lines.write(json.dumps(asdict(line)) + "\n")
            if not run.stopping:
                report(line)
            if time.monotonic() - saved > settings.checkpoint_seconds:
                lines.flush()
                checkpoint.save(path, run.state())
                saved = time.monotonic()
        if first:
            checkpoint.save(path, run.state())
    if not first:
        return
    if run.fraction < 1:
        with suppress(OSError):  # the launching process is gone
            report(Stopped.after(run.steps))
        return
    export(run.averaged().llama, materials.tokenizer, settings.out_dir, run.tokens, run.steps, settings.start)
