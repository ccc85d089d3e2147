"""Recurrent layers: the matrix of methods and promises, and tests of their own."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from engine import Context, Conversation, Method, Reader, make_method
from engine.errors import ContextMismatch, NoSuchWeights, OutOfMemory, UnsupportedModel
from engine.loops.passes import condense, feed
from engine.memory import STATES
from engine.model import Model
from engine.models.attention_interface import run
from engine.models.recurrence import recurrence_of
from engine.models.recurrent_state import RecurrentState, limit_kernels_to_gpu
from engine.models.sizes import model_sizes, sizes_of
from engine.parts.footprint import ReadingTask
from engine.parts.mass import no_source
from engine.planning.plan import Machine
from engine.planning.planner import Planner
from engine.records import DEVICE
from engine.trained import retaining
from engine.trained.retaining import RetainingHeads
from engine.trained.sidecar_weights import save_weights
from tests.engine.architectures import EXTRA, SMALL, compare, kinds_with, small_config
from tests.engine.conftest import byte_tokenizer
from tests.engine.matrix import TIGHT
from tests.engine.plans import GB, peak_of_pass
from tests.engine.reading import answer, finish, loaded, next_logits, read, reopened, resumed, with_budget

KINDS = ["qwen3_5_text", "granitemoehybrid", "falcon_h1"]  # linear attention, Mamba without RoPE, and Mamba beside it
NAMES = ["full", "full-int8", "streaming", "exact", "infllm", "infinitehip", "recall", "infinipot-both"]
NAMES += ["infinipot-int8-heads", "locret"]
CLOSE = {"atol": 1e-4, "rtol": 1e-3}  # states from chunks of other sizes differ more than entries do
CODES_CLOSE = {"atol": 5e-3, "rtol": 5e-3}
QUESTION = torch.tensor([1, 80, 81, 82, 2])
every_kind = pytest.mark.parametrize("kind", KINDS)
# Each method with one kind, and each of two kinds with five methods, those that store codes and condense among them.
paired = pytest.mark.parametrize(("kind", "name"), [(KINDS[number % 2], name) for number, name in enumerate(NAMES)])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """Make random models with retaining heads beside them."""
    made = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        made[kind] = model = Model(network(kind), byte_tokenizer(), kind, "-", folder)
        heads = RetainingHeads(model.spec, [24] * len(model.spec.layers))
        save_weights(heads, folder / retaining.FILE, model.spec, {})
    return made


@pytest.fixture
def model(models: dict[str, Model], kind: str) -> Model:
    return models[kind]


def network(kind: str) -> PreTrainedModel:
    torch.manual_seed(0)
    config = small_config(kind)
    config.initializer_range = 0.1
    made: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    return made


def granite(**facts: Any) -> PretrainedConfig:
    return AutoConfig.for_model("granitemoehybrid", **{**SMALL, **EXTRA["granitemoehybrid"], **facts})


def close(method: Method) -> dict[str, float]:
    return CODES_CLOSE if getattr(method, "store", "") == "int8" else CLOSE


@every_kind
@pytest.mark.parametrize("name", [name for name in NAMES if "int8" not in name])
def test_unlimited_budget_equals_transformers(model: Model, kind: str, name: str, ids: Tensor) -> None:
    with torch.no_grad():
        everything = torch.cat([torch.tensor(model.chat.prefix), ids, QUESTION])
        expected = network(kind)(input_ids=everything[None]).logits[0, -len(QUESTION) :]
    method = with_budget(TIGHT[name], None)
    found = next_logits(model, method, read(model, method, ids).memory, QUESTION)
    torch.testing.assert_close(found, expected, **CLOSE)


@paired
def test_chunk_size_does_not_change_the_answer(model: Model, name: str, ids: Tensor) -> None:
    """Check passes of 111 tokens, and of one token each behind the first 240."""
    method = TIGHT[name]
    expected = next_logits(model, method, read(model, method, ids).memory, QUESTION)
    found = next_logits(model, method, read(model, method, ids, 111).memory, QUESTION, 111)
    torch.testing.assert_close(found, expected, **close(method))
    one_by_one = finish(resumed(Reader(model, method, ids, 80), 4, 1))
    found = next_logits(model, method, one_by_one.memory, QUESTION, 1)
    torch.testing.assert_close(found, expected, **close(method))


@every_kind
def test_a_text_read_token_by_token_gives_the_same_answer(model: Model, ids: Tensor) -> None:
    method = TIGHT["full"]
    expected = next_logits(model, method, read(model, method, ids[:100]).memory, QUESTION)
    found = next_logits(model, method, read(model, method, ids[:100], 1).memory, QUESTION, 1)
    torch.testing.assert_close(found, expected, **CLOSE)


@paired
def test_save_load_and_continue_equals_uninterrupted(model: Model, name: str, ids: Tensor) -> None:
    method = TIGHT[name]
    whole = read(model, method, ids)
    context = finish(resumed(Reader(model, method, ids, 48), 3, 64))
    expected = next_logits(model, method, whole.memory, QUESTION)
    torch.testing.assert_close(next_logits(model, method, context.memory, QUESTION), expected, **close(method))
    conversation = Conversation(whole)
    for number in range(4):
        answer(conversation, f"question number {number}?")
    again = reopened(whole, conversation)
    assert answer(again, "And then?") == answer(conversation, "And then?")


@paired
def test_a_fork_never_changes_its_base(model: Model, name: str, ids: Tensor) -> None:
    """Check that a cancelled question does not change it either."""
    context = read(model, TIGHT[name], ids)
    before = {key: state.clone() for key, state in context.state()[0][STATES].tensors.items()}
    first, second = Conversation(context), Conversation(context)
    alone = answer(Conversation(context), "Who?")
    for number in range(4):
        answer(first, f"a long question, number {number}, to overflow the tail?")
    pieces = second.ask("Something that is not asked to its end, is it?")
    next(pieces)
    pieces.close()
    assert answer(second, "Who?") == alone
    after = context.state()[0][STATES].tensors
    assert before
    assert all(torch.equal(after[key], state) for key, state in before.items())


@paired
def test_the_plan_is_what_a_reading_holds(model: Model, name: str, ids: Tensor) -> None:
    method = TIGHT[name]
    footprint = method.plan(model.spec, ReadingTask(len(ids), len(model.chat.prefix), 64, model.turn_length))
    context = read(model, method, ids)
    assert context.memory.recurrent.nbytes() == model.spec.state_bytes > 0
    assert context.usage() == footprint.usage
    conversation = Conversation(context)
    for number in range(4):
        answer(conversation, f"question number {number}?")
    assert conversation.usage().bytes[DEVICE] <= footprint.usage.bytes[DEVICE] + footprint.conversation_bytes


@every_kind
def test_what_a_catalyst_says_is_not_carried_on(model: Model, ids: Tensor) -> None:
    method = TIGHT["infinipot-both"]
    memory = read(model, method, ids).memory
    before = memory.recurrent.now
    condense(model, method, memory)
    assert memory.recurrent.now is before
    for _ in feed(model, method, memory, QUESTION, no_source(len(QUESTION)), 64):
        pass
    state, other = RecurrentState(before), read(model, TIGHT["full"], ids[:3]).memory.fork()
    other.begin_pass(no_source(len(QUESTION)))
    run(model.network, QUESTION, other, state=state)
    first = sorted(state.states)[0]  # of the first layer, which sees the tokens alone
    torch.testing.assert_close(memory.recurrent.now[first], state.states[first])


@every_kind
def test_a_context_without_its_states_is_refused(model: Model, ids: Tensor) -> None:
    """Regression: it opened as if nothing had been read, and gave other answers."""
    parts, meta = read(model, TIGHT["full"], ids).state()
    del parts[STATES]
    with pytest.raises(ContextMismatch, match="does not fit this model and method"):
        Context.load(model, TIGHT["full"], loaded(parts), meta)


@every_kind
def test_a_conversations_own_states_are_counted(model: Model, ids: Tensor) -> None:
    context = read(model, TIGHT["full"], ids)
    conversation = Conversation(context)
    assert conversation.memory.recurrent.nbytes() == model.spec.state_bytes
    answer(conversation, "Who?")
    assert conversation.memory.recurrent.nbytes() == 2 * model.spec.state_bytes


def test_some_of_a_family_attend_in_all_layers() -> None:
    """Regression: the plan of Granite 4 (350M to 3B) was refused."""
    config = granite(layer_types=["attention"] * 4, position_embedding_type="rope", num_local_experts=0)
    spec = compare(config, "granitemoehybrid").spec
    assert len(spec.layers) == 4
    assert not spec.recurrent
    assert model_sizes(config, torch.float32).recurrence is None


def test_where_no_layer_attends_there_is_nothing_to_remember() -> None:
    with pytest.raises(UnsupportedModel, match="No layer of this 'granitemoehybrid' attends to tokens"):
        model_sizes(granite(layer_types=["mamba"] * 4), torch.float32)


def test_kernels_of_other_packages_are_called_on_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: once installed, transformers called them for tensors on every device, and failed."""

    def plain(x: Tensor, *, twice: bool = False) -> Tensor:
        return x * 2 if twice else x

    @functools.wraps(plain)
    def kernel(x: Tensor, *, twice: bool = False) -> Tensor:
        raise ValueError("cannot be accessed from Triton")

    module: Any = types.ModuleType("modeling")
    module.torch_chunk_rule, module.causal_conv1d_fn, module.other = kernel, kernel, kernel
    monkeypatch.setitem(sys.modules, "modeling", module)
    limit_kernels_to_gpu("modeling")
    assert module.torch_chunk_rule(torch.ones(1)) == 1
    assert module.causal_conv1d_fn(torch.ones(1), twice=True) == 2
    assert module.other is kernel
    with pytest.raises(ValueError, match="Triton"):
        module.torch_chunk_rule(MagicMock(is_cuda=True))


@every_kind
def test_a_pass_that_failed_leaves_the_states(model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = read(model, TIGHT["full"], ids).memory
    before, kept = memory.recurrent.now, {key: state.clone() for key, state in memory.recurrent.now.items()}

    def starved(*args: Any) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "attend", starved)
        with pytest.raises(OutOfMemory):
            for _ in feed(model, TIGHT["full"], memory, QUESTION, no_source(len(QUESTION)), 64):
                pass
    assert memory.recurrent.now is before
    assert all(torch.equal(before[key], state) for key, state in kept.items())


@every_kind
@pytest.mark.parametrize("name", ["full", "streaming", "infinipot-both", "locret"])
def test_static_passes_say_what_others_say(model: Model, name: str, ids: Tensor, replayed: list[int]) -> None:
    context = read(model, TIGHT[name], ids)
    theirs, ours = Conversation(context), Conversation(context)
    for token in ids[:30].tolist():
        with model.recorder.stopped():
            expected = theirs.feed([token], repeated=True)
        torch.testing.assert_close(ours.feed([token], repeated=True), expected, rtol=1e-3, atol=1e-3)
    assert len(replayed) > 20


@pytest.mark.parametrize("kind", kinds_with("recurrent"))
def test_a_config_tells_what_the_loaded_model_carries(kind: str) -> None:
    config = small_config(kind)
    loaded_model = Model(AutoModelForCausalLM.from_config(config), byte_tokenizer(), kind, "-")
    planned = model_sizes(config, torch.float32)
    assert planned.spec.state_bytes == loaded_model.spec.state_bytes > 0
    assert planned.recurrence == recurrence_of(loaded_model.network, torch.float32)
    halved = model_sizes(config, torch.bfloat16).spec.state_bytes
    assert halved == Model(loaded_model.network.to(torch.bfloat16), byte_tokenizer(), kind, "-").spec.state_bytes


@pytest.mark.parametrize("kind", ["qwen3_5_text", "bamba", "lfm2"])
def test_the_workspace_is_not_less_than_a_pass_takes(kind: str) -> None:
    """Cover linear attention and Mamba, which hold far more at once than attention."""
    wide = {"linear_num_value_heads": 16, "linear_num_key_heads": 16, "mamba_n_heads": 32, "mamba_expand": 8}
    config = small_config(kind)
    config.update({name: value for name, value in wide.items() if hasattr(config, name)})
    torch.manual_seed(0)
    model = Model(AutoModelForCausalLM.from_config(config), byte_tokenizer(), kind, "-")
    ids, method = torch.randint(4, 260, (3 * 256 - len(model.chat.prefix),)), make_method("full")
    machine = Machine(64 * GB, 0, True)
    plan = Planner(sizes_of(model.network, model.spec), machine, model.turn_length).plan(method, len(ids))
    assert peak_of_pass(model, method, ids, plan.chunk) <= plan.workspace_bytes + plan.footprint.condense_bytes


@pytest.mark.parametrize("kind", KINDS[:1])
def test_beacons_are_refused(model: Model) -> None:
    """Regression: a plan said that the method fits once it is trained."""
    method = make_method("beacon")
    with pytest.raises(NoSuchWeights, match="this model's recurrent layers would carry them on: choose another method"):
        method.weights_digest(model.spec)
    plan = Planner(sizes_of(model.network, model.spec), Machine(64 * GB, 0, True)).plan(method, 1000)
    assert (plan.fits, plan.possible, plan.longest) == (False, False, 0)
    assert "carry them on" in plan.lacks
