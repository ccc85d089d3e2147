"""Plan a reading: predict its memory and its time before anything is loaded.

    weights + KV of the device tier + workspace of a pass <= memory of the device
    KV of the host tier                                   <= memory of the host
    KV of all tiers, while it is saved                    <= free space on the disk, if known

The bytes of weights come from the configuration (`models/sizes.py`), those of the KV from the method (`Method.plan`),
those of the workspace from the tensors that a pass holds at once, and times from `times.py`. Bytes are to be exact,
times right within a factor of two.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import torch

from engine.errors import NoSuchWeights, WeightsError
from engine.loops.answering import READ_AGAIN, READ_WIDE
from engine.loops.passes import NOVELTY_ROWS
from engine.loops.reader import default_chunk
from engine.methods import METHODS, make_method, quicker_stores, suited_stores
from engine.methods.base import Method
from engine.model import Model
from engine.models.recurrence import ROWS
from engine.models.sizes import ModelSizes, sizes_of
from engine.models.spec import LayerSpec
from engine.parts.archive.options import AUTO
from engine.parts.footprint import Footprint, ReadingTask, TurnTokens
from engine.planning.choice import Choice, condensed, dense, exactly, looked_up
from engine.planning.flops import operations
from engine.planning.plan import Machine, Plan
from engine.planning.times import QUESTION, PassTimes
from engine.records import DEVICE, DISK, HOST

LEAST_CHUNK = 64
OF_MIXTURES = 4  # factor of the length of passes on a GPU, where each reaches nearly all experts
PREFIX = 32  # tokens of a chat template before the text, if there is no tokenizer
GPU_BASE = 600 << 20  # bytes of a CUDA context and its libraries
LONGEST = 1 << 34  # tokens; a method that fits this many fits any text
STRETCH = 1.25  # factor of the window that a model may attend to during a pass (docs/methods/locret.md)
APPROXIMATED = 1 << 17  # tokens; in longer texts approximations find far less than `exact`
KEPT_WHOLE = (DEVICE, HOST)  # tiers of methods that are recommended, the fastest first
BUDGETS = tuple(1 << exponent for exponent in range(17, 7, -1))


class Planner:
    """Plans readings by one model on one machine."""

    def __init__(
        self, model: ModelSizes, machine: Machine, turn_tokens: TurnTokens | None = None, prefix: int = PREFIX
    ) -> None:
        """Plan for a model on a machine.

        turn_tokens, prefix: from the model's chat template; without a tokenizer they are estimated.
        """
        self.model, self.machine = model, machine
        self.turn_tokens, self.prefix = turn_tokens or estimated_turn, prefix

    @classmethod
    def of_loaded(cls, model: Model, machine: Machine) -> Planner:
        """Plan for a loaded model."""
        return cls(sizes_of(model.network, model.spec), machine, model.turn_length, len(model.chat.prefix))

    def plan(self, method: Method, tokens: int, quantize: str = "none", weights: bool = True, read: int = 0) -> Plan:
        """Plan the reading of a text of `tokens`, in the largest passes that fit.

        The plan's method names a tier where the given one leaves it open.

        quantize: as asked for; the weights are in the form that it leads to (`ModelSizes.form`).
        weights: False if the model is loaded, so that its weights no longer count against free memory.
        read: tokens of the text that a checkpoint holds already.
        """
        quantize = self.model.form(quantize)
        held = self.model.weight_bytes(quantize) if weights else 0
        places = self._places(method)
        return self._with_longest(self._in_first_place(places, tokens, quantize, held, read), held, places)

    def placed(self, method: Method, tokens: int, quantize: str = "none", read: int = 0) -> Method:
        """Return the method as `plan` has it beside the loaded model, with a tier that says where entries lie."""
        places, quantize = self._places(method), self.model.form(quantize)
        return method if len(places) == 1 else self._in_first_place(places, tokens, quantize, 0, read).method

    def _places(self, method: Method, tiers: Sequence[str] = (DEVICE, HOST, DISK)) -> list[Method]:
        """Return the method with each tier that its `auto` may be on this machine, the fastest first."""
        on_cpu = self.machine.shared or self.model.spec.device.type == "cpu"
        if on_cpu or method.settings().get("tier") != AUTO:
            return [method]
        return [dataclasses.replace(method, **{"tier": tier}) for tier in tiers]  # type: ignore[arg-type]

    def _in_first_place(self, places: list[Method], tokens: int, quantize: str, held: int, read: int = 0) -> Plan:
        """Plan the first of several methods that fits, without `longest`; if none does, the one in host memory.

        The device is for entries only as far as passes stay long enough to keep it busy.
        """
        plans = []
        for method in places:
            plan = self._in_largest_passes(method, tokens, quantize, held, read)
            busy = min(default_chunk(self.machine.shared) // 2, self._usual_chunk(method))
            unhindered = plan.chunk >= busy or method is not places[0] or len(places) == 1
            if plan.fits and unhindered:
                return plan
            plans.append(plan)
        return plans[min(1, len(plans) - 1)]

    def _usual_chunk(self, method: Method) -> int:
        """Return the tokens of a pass if there is room enough."""
        if self.model.experts and not self.machine.shared:
            chunk = OF_MIXTURES * default_chunk(on_cpu=False)
        else:
            chunk = default_chunk(self.machine.shared, method)
        return min(chunk, method.pass_limit() or chunk)

    def _with_longest(self, plan: Plan, held: int, places: Sequence[Method]) -> Plan:
        """Return the plan with the longest text that would fit in any place."""
        if not plan.possible:
            return dataclasses.replace(plan, longest=0)
        each = [self._longest(method, plan.quantize, held) for method in places]
        known = [longest for longest in each if longest is not None]
        return dataclasses.replace(plan, longest=max(known) if len(known) == len(each) else None)

    def _in_largest_passes(self, method: Method, tokens: int, quantize: str, held: int, read: int = 0) -> Plan:
        """Plan without `longest`, which takes most of the time to find."""
        chunk, plan = self._usual_chunk(method), None
        while plan is None or (plan.device_bytes > plan.device_limit and chunk > LEAST_CHUNK):
            chunk = chunk if plan is None else chunk // 2
            plan = self._plan(method, tokens, quantize, held, chunk, read)
        try:
            method.weights_digest(self.model.spec)
        except NoSuchWeights as error:
            return dataclasses.replace(plan, lacks=str(error), beyond="", fits=False, possible=False)
        except WeightsError as error:
            return dataclasses.replace(plan, lacks=str(error))
        return plan

    def _alone(self, tokens: int, whole: bool) -> int:
        """Return the bytes of a memory of passages that are read again alone.

        Args:
            tokens: length of the text.
            whole: whether the memory of the text shows it whole.
        """
        again = min(tokens, READ_AGAIN if whole else READ_WIDE)
        task = ReadingTask(again, self.prefix, QUESTION, self.turn_tokens)
        footprint = make_method("full").plan(self.model.spec, task)
        return footprint.usage.bytes[DEVICE] + footprint.conversation_bytes

    def _plan(self, method: Method, tokens: int, quantize: str, held: int, chunk: int, read: int = 0) -> Plan:
        chunk = min(chunk, method.pass_limit() or chunk)
        task = ReadingTask(tokens, self.prefix, chunk, self.turn_tokens, read)
        footprint = method.plan(self.model.spec, task)
        passed = footprint.work.passed
        rows = min(chunk, task.total) * (passed + footprint.work.inserted) // passed
        workspace = self._workspace(method, footprint, rows, quantize)
        kept = footprint.usage.bytes
        held += footprint.weight_bytes
        # A reading and questions need memory beside the KV at different times, so the larger need counts.
        reading = held + kept[DEVICE] + footprint.temporary_bytes + workspace + self.machine.base
        alone = self._alone(tokens, footprint.usage.entries[DEVICE] >= task.total)
        talking = held + kept[DEVICE] + footprint.conversation_bytes + alone + self.machine.base
        asking = talking + self._workspace(method, footprint, min(rows, QUESTION), quantize)
        device = max(reading, talking + workspace)
        # Entries on the device are copied to host memory to be saved while the text is read on.
        saving = footprint.host_saving_bytes + footprint.saved_bytes
        host = kept.get(HOST, 0) + max(saving, footprint.host_conversation_bytes)
        if self.machine.shared:
            reading, asking, device, host = reading + host, asking + host, device + host, 0
        disk = _disk_bytes(footprint)
        storable = self.machine.disk is None or disk <= self.machine.disk
        reading_sec, first, speed = self._times(method, footprint, task, quantize)
        return Plan(
            method=method,
            quantize=quantize,
            tokens=tokens,
            chunk=chunk,
            footprint=footprint,
            weight_bytes=self.model.weight_bytes(quantize),
            workspace_bytes=workspace,
            reading_device_bytes=reading,
            asking_device_bytes=asking,
            device_bytes=device,
            host_bytes=host,
            disk_bytes=disk,
            device_limit=self.machine.device,
            host_limit=self.machine.host,
            fits=device <= self.machine.device and host <= self.machine.host and storable,
            longest=None,
            reading_sec=reading_sec,
            first_token_sec=first,
            answer_tokens_per_sec=speed,
            beyond=self._beyond(method, footprint),
        )

    def operations(self, method: Method, tokens: int, of: int) -> float:
        """Return the operations of reading the first `tokens` of a text of `of`, which measure progress."""
        chunk = default_chunk(self.machine.shared, method)
        task = ReadingTask(tokens, self.prefix, chunk, self.turn_tokens, beginning_of=of)
        return self._operations(method, method.plan(self.model.spec, task))

    def _operations(self, method: Method, footprint: Footprint) -> float:
        work = footprint.work
        scored = work.passed if method.needs_novelty() else 0
        return operations(self.model, work.passed + work.inserted, work.attended, scored).total

    def _beyond(self, method: Method, footprint: Footprint) -> str:
        window = self.model.spec.window
        beside = footprint.usage.entries[DEVICE] - footprint.resident
        most = beside + footprint.lookup.fetched_per_answer_token
        if unseen := self._unseen(method, footprint):
            return unseen
        if method.budget is None:
            instead = "one with a budget"
        elif method.passing(self.model.spec) and footprint.work.widest > STRETCH * window:
            most = footprint.work.widest  # tokens of a pass follow the kept entries
            instead = f"a budget of at most {method.budget * window // most:,}"
        else:
            most = min(most, method.budget)  # some hold a few more tokens, which is no cause for a warning
            instead = f"a budget of at most {window:,}"
        if most <= window:
            return ""
        return (
            f"The model was trained for {window:,} tokens at a time, and with {method.name} it would attend to "
            f"{most:,} at once: expect poor answers, or choose {instead}."
        )

    def _unseen(self, method: Method, footprint: Footprint) -> str:
        spec = self.model.spec
        if spec.reach == spec.window:
            return ""
        if footprint.lookup.searched:
            seen, instead = f"so what {method.name} keeps of the text is never looked up", "condense it, with "
        elif method.budget is None and footprint.work.passed > spec.window:
            seen, instead = f"so with {method.name} they see the end of the text alone", "condense it, with "
        elif method.budget is not None and footprint.usage.entries[DEVICE] - footprint.resident > STRETCH * spec.reach:
            seen, instead = f"so of what {method.name} keeps they see the last alone", "take "
        else:
            return ""
        far = f"Every layer of this model looks back {spec.reach:,} tokens at most"
        return f"{far}, {seen}: {instead}a budget of at most {spec.reach:,}."

    def _longest(self, method: Method, quantize: str, held: int) -> int | None:
        """Return the most tokens that fit in the smallest passes, by bisection: needs never fall as a text grows."""
        machine = dataclasses.replace(self.machine, rates=None)  # times do not matter here
        untimed = Planner(self.model, machine, self.turn_tokens, self.prefix)

        def fits(tokens: int) -> bool:
            return untimed._plan(method, tokens, quantize, held, LEAST_CHUNK).fits

        if fits(LONGEST):
            return None
        low, high = 0, LONGEST
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _workspace(self, method: Method, footprint: Footprint, rows: int, quantize: str) -> int:
        """Return the bytes of the largest set of tensors that a pass of `rows` holds, without weights and KV."""
        model = self.model
        size = model.spec.dtype.itemsize
        attention = max(self._attention_bytes(layer, footprint, rows) for layer in model.spec.layers)
        scored = min(rows, NOVELTY_ROWS) if method.needs_novelty() else 1
        logits = rows * model.hidden * size + scored * model.vocabulary * (size + 8)
        if method.needs_novelty() and self.machine.shared and model.spec.dtype == torch.float32:
            logits += 2 * model.hidden * model.vocabulary  # a CPU's copy of the head in bfloat16
        recurring = -(-rows // ROWS) * ROWS * model.recurrence.held if model.recurrence else 0
        stream = rows * model.hidden * (3 * size + 4)  # residual, its norm in float32, the layer's input and output
        positions = max(footprint.work.widest, footprint.work.positions)
        tables = sum(rope.bytes_for(positions, size) for rope in model.spec.ropes)
        return (
            stream
            + max(attention, model.mlp_bytes(rows, quantize), logits, recurring)
            + tables
            + model.unpacked_bytes(quantize)
        )

    def _attention_bytes(self, layer: LayerSpec, footprint: Footprint, rows: int) -> int:
        size = self.model.spec.dtype.itemsize
        query_heads, kv_heads, width = layer.query_heads, layer.kv_heads, layer.head_size
        keys = max(footprint.work.widest, rows)
        # q, k, v, rotated q and its parts; for latents, which are wider, also the outputs that are merged
        tensors = rows * (4 * query_heads + 3 * kv_heads) * width * size
        tensors += 16 * rows * query_heads * width if layer.latent else 0
        mask = rows * keys * (5 + size) if self.model.spec.device.type == "cpu" else 0  # a GPU's kernels make none
        if footprint.work.coded:  # keys before and after RoPE, and float32 numbers on the way from codes
            tensors += keys * kv_heads * width * (2 * size + 8)
        if not footprint.work.explicit:
            return tensors + mask
        logits = query_heads * rows * keys * (8 + size)  # logits and softmax in float32, then in the model's dtype
        return tensors + mask + logits + 2 * kv_heads * keys * width * size

    def _times(
        self, method: Method, footprint: Footprint, task: ReadingTask, quantize: str
    ) -> tuple[float | None, float | None, float | None]:
        """Return seconds of the reading, seconds to a first token, and tokens per second of an answer."""
        rates = self.machine.rates
        if rates is None:
            return None, None, None
        times = PassTimes(self.model, rates, self.machine.shared, quantize)
        return times.of(footprint, task.chunk, method.needs_novelty())

    def best(self, tokens: int, quantizations: Sequence[str] | None = None) -> Choice | None:
        """Return the method and settings that keep the most of a text and fit beside the weights; None if none does.

        The order of preference:

        1. A method that keeps every entry and attends to all of them, within the model's window.
        2. A method that keeps every entry, in fewer bits if need be, and looks up the best for each question, if
           answers are fast enough and layers look that far. For long texts exact search comes first.
        3. A condensing method with the largest budget that fits the memory and the window.

        The first two take the least lossy weights that leave room, since forgotten text costs more answers than bits of
        weights do. The third takes the least lossy weights beside which its budget is at least `ENOUGH`. Methods that
        lack trained weights are left out.

        quantizations: of the weights, to choose from, the least lossy first; None for all.
        """
        tried = [self.model.form(each) for each in quantizations or self.model.quantizations]

        @functools.cache
        def fitting(quantize: str) -> list[Plan]:
            return [plan for plan in self.candidates(tokens, quantize) if not plan.lacks]

        within = tokens <= self.model.spec.window - 512  # leaves space for questions and answers
        ways = [*([dense] if within else []), *([exactly] if tokens > APPROXIMATED else []), looked_up]
        kept = (choose(fitting(each)) for choose in ways for each in tried)
        found = next(filter(None, kept), None) or condensed([fitting(each) for each in tried])
        if found is None:
            return None
        places = [found.plan.method]
        if found.plan.footprint.resident:  # a longer text would be in host memory
            places.append(dataclasses.replace(found.plan.method, **{"tier": HOST}))  # type: ignore[arg-type]
        plan = self._with_longest(found.plan, self.model.weight_bytes(found.plan.quantize), places)
        return dataclasses.replace(found, plan=plan)

    def unloaded(self, quantize: str) -> Planner:
        """Return a planner as if the model, loaded with weights in this quantisation, were not loaded."""
        machine = dataclasses.replace(self.machine, device=self.machine.device + self.model.weight_bytes(quantize))
        return Planner(self.model, machine, self.turn_tokens, self.prefix)

    def candidates(self, tokens: int, quantize: str) -> Iterator[Plan]:
        """Yield plans that fit, one or a few a method; `best` chooses among them."""
        held = self.model.weight_bytes(quantize)
        for name, kind in METHODS.items():
            if kind.family == "baseline":
                continue
            if kind.family == "condensing":
                yield from self._budgets(name, tokens, quantize)
            else:
                window = self.model.spec.window
                quicker = [] if self.machine.shared else quicker_stores(window, name)
                for methods in (suited_stores(window, name), quicker):
                    places = (self._places(method, KEPT_WHOLE) for method in methods)
                    plans = (self._in_first_place(each, tokens, quantize, held) for each in places)
                    for plan in (plan for plan in plans if plan.fits):
                        yield plan
                        if not plan.footprint.lookup.fetched:  # else fewer bits make its reading quicker
                            break

    def _budgets(self, name: str, tokens: int, quantize: str) -> Iterator[Plan]:
        """Yield the plan of the largest budget that fits, up to the model's window and the length of the text."""
        spec, held = self.model.spec, self.model.weight_bytes(quantize)
        most = min(spec.window, STRETCH * spec.reach, max(BUDGETS[-1], 1 << (tokens + 512).bit_length()))
        for budget in BUDGETS:
            if budget <= most:
                plan = self._in_largest_passes(make_method(name, budget=budget), tokens, quantize, held)
                if plan.fits and not plan.beyond:
                    yield plan
                    return


def _disk_bytes(footprint: Footprint) -> int:
    """Return the bytes on disk while a reading is saved.

    Full slabs are written once. The rest is written anew each time, beside its previous copy.
    """
    kept = footprint.usage.bytes
    archived = kept.get(HOST, 0) + kept.get(DISK, 0) + footprint.resident_bytes
    return 2 * footprint.saved_bytes + archived + footprint.host_saving_bytes


def estimated_turn(text: str) -> int:
    """Estimate the tokens that a text takes as a turn, without a tokenizer: one for three letters."""
    return len(text) // 3 + 16
