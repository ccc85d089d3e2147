"""Training of beacons: same windows as the engine, falling loss, resuming, usable weights."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from benchmarks.options import variant
from engine import EngineError, Model, Reader, SettingsError, WeightsError, load_model, make_method
from engine.loops.passes import feed
from engine.parts.mass import NOT_IN_SOURCE
from engine.trained.beacons import FILE, RATIOS, find_beacons
from engine.trained.sidecar_weights import save_weights
from tests.engine.architectures import small_config
from tests.engine.conftest import byte_tokenizer
from tests.training.resuming import bench_command, trained_and_resumed
from training.beacon import BeaconSettings, train
from training.beacon.examples import Example, Generated, Rows
from training.beacon.train import Run, finish, first_beacons, learn_from
from training.beacon.unrolled import read_through
from training.loop import log_of
from training.pocket.prepare import Materials
from training.pocket.settings import PocketSettings
from training.pocket.train import model_config


@pytest.fixture
def chosen(folder: Path, data: Path, tmp_path: Path) -> BeaconSettings:
    return BeaconSettings(
        model=str(folder),
        data=data,
        out=tmp_path / FILE,
        work_dir=tmp_path / "work",
        device="cpu",
        window=64,
        steps=24,
        plain_share=0.25,
        warmup=2,
        batch=1,
        max_tokens=256,
        held_out=2,
    )


@pytest.mark.parametrize("ratio", [2, 8])
def test_training_reads_as_the_method_does(model: Model, tmp_path: Path, ratio: int) -> None:
    ids = torch.randint(4, 260, (150,), generator=torch.Generator().manual_seed(3))
    beacons = first_beacons(model)
    with torch.no_grad():
        for weight in beacons.parameters():
            weight.copy_((weight + 0.1 * torch.randn_like(weight)).bfloat16())  # as the file will have them
        expected = read_through(model, beacons, ids, 32, [ratio] * 5)
    path = tmp_path / FILE
    save_weights(beacons, path, model.spec, {})
    method = make_method("beacon", budget=256, window=32, ratio=ratio, weights=str(path))
    memory = method.new_memory(model.spec, model.turn_length)
    source = torch.full((150,), NOT_IN_SOURCE, dtype=torch.int32)
    hidden = [step.hidden for step in feed(model, method, memory, ids, source, 11) if step.hidden is not None]
    torch.testing.assert_close(torch.cat(hidden), expected, atol=2e-5, rtol=1e-4)


def test_gradients_flow_through_all_windows_and_into_beacons_alone(model: Model) -> None:
    beacons = first_beacons(model)
    ids = torch.randint(4, 260, (100,), generator=torch.Generator().manual_seed(3))
    hidden = read_through(model, beacons, ids, 32, [4, 2, 8, 2])
    torch.autograd.backward([hidden[-1].square().sum()])  # the last window sees the first only through its beacons
    for name, weight in beacons.named_parameters():
        if "projections.6" in name:  # queries of the last layer make beacons' outputs, which nothing follows
            continue
        assert weight.grad is not None, name
        assert float(weight.grad.abs().sum()) > 0, name
    assert all(weight.grad is None for weight in model.network.parameters())


def test_going_on_from_an_earlier_version(model: Model, folder: Path, tmp_path: Path) -> None:
    earlier = shutil.copytree(folder, tmp_path / "earlier")
    taught = first_beacons(model)
    with torch.no_grad():
        for weight in taught.parameters():
            weight.copy_((weight + 0.1 * torch.randn_like(weight)).bfloat16())
    save_weights(taught, earlier / FILE, model.spec, {})
    fresh = first_beacons(model)
    learn_from(fresh, earlier)
    for name, weight in taught.named_weights().items():
        torch.testing.assert_close(fresh.named_weights()[name], weight, atol=1e-6, rtol=1e-5)
    with pytest.raises(WeightsError, match="needs beacon weights"):
        learn_from(fresh, folder)


def test_loss_falls(model: Model, chosen: BeaconSettings) -> None:
    run = Run(chosen, model, Rows(chosen, model))
    before = run.measure()
    lines = [run.step() for _ in range(24)]
    after = run.measure()
    assert [line.phase for line in lines] == ["plain"] * 6 + ["asked"] * 18
    assert [each.ratio for each in after] == [1, *RATIOS]
    assert after[0] == before[0], "the model itself is frozen"
    assert sum(each.loss for each in after[1:4]) < 0.9 * sum(each.loss for each in before[1:4])
    assert lines[-1].rate < lines[4].rate == 1.0


def test_every_window_draws_a_ratio_of_its_phase(model: Model, chosen: BeaconSettings) -> None:
    """Plain text starts with the smallest ratio and adds the others; questions have 2, 4 and 8."""
    run = Run(dataclasses.replace(chosen, steps=100, plain_share=0.5, batch=4), model, Rows(chosen, model))
    drawn: dict[int, list[list[int]]] = {}

    def losses(example: Example, window: int, ratios: list[int]) -> tuple[Tensor, Tensor, float]:
        assert (window, len(ratios)) == (64, -(-len(example.ids) // 64))
        drawn.setdefault(run.steps, []).append(ratios)
        nothing = run.beacons.embedding.weight.sum() * 0
        return nothing, nothing, 0.0

    run.losses = losses  # type: ignore[method-assign]
    for _ in range(100):
        run.step()
    for begin, end, known in (
        *((10 * count, 10 * count + 10, RATIOS[: count + 1]) for count in range(5)),
        (50, 100, (2, 4, 8)),
    ):
        found = [ratios for step in range(begin, end) for ratios in drawn[step]]
        assert {ratio for ratios in found for ratio in ratios} == set(known)
        assert len(known) == 1 or any(len(set(ratios)) > 1 for ratios in found), "each window has its own"


def test_the_loss_is_that_of_answers_and_a_share_of_plain_text(model: Model, chosen: BeaconSettings) -> None:
    run = Run(dataclasses.replace(chosen, language=0.3), model, Rows(chosen, model))
    ids = torch.randint(4, 260, (150,), generator=torch.Generator().manual_seed(3))
    weights = torch.zeros(150)
    weights[70:100], weights[120:130], weights[140:] = -1.0, 1.0, 0.5
    run.examples = Given(Example(ids, weights))
    run.optimiser.step = lambda rate: rate  # type: ignore[method-assign]
    line = run.step()
    gradients = [p.grad.clone() for p in run.beacons.parameters() if p.grad is not None]
    run.beacons.zero_grad()
    ratios = random.Random(f"{chosen.seed}/0").choices((2,), k=3)
    said = model.logits(read_through(model, run.beacons, ids, 64, ratios)).log_softmax(-1)
    each = -said[:-1].gather(1, ids[1:, None])[:, 0]
    answer = (each * weights[1:].clamp(min=0)).sum() / 15
    plain = each[69:99].mean()
    assert line.loss == pytest.approx(float(answer.detach()), rel=1e-4)
    assert line.language_loss == pytest.approx(float(plain.detach()), rel=1e-4)
    (answer + 0.3 * plain).backward()  # type: ignore[no-untyped-call]
    expected = [p.grad for p in run.beacons.parameters() if p.grad is not None]
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-3)


class Given:
    """A source of examples that gives the same one each time."""

    def __init__(self, example: Example) -> None:
        self.example = example

    def draw(self, number: int, plain: bool) -> Example:
        return self.example

    def held_out(self, number: int) -> Example:
        return self.example


def test_what_has_no_gradient_stays_the_copy_it_began_as(model: Model, chosen: BeaconSettings) -> None:
    """Regression: weight decay pulled projections towards zero instead of the model's own."""
    run = Run(chosen, model, Rows(chosen, model))
    begun = [weight.detach().clone() for weight in run.beacons.parameters()]
    run.optimiser.step(1.0)
    assert all(map(torch.equal, run.beacons.parameters(), begun))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_a_low_precision_is_trained_for_and_measured(
    folder: Path, chosen: BeaconSettings, dtype: torch.dtype
) -> None:
    """Regression: measuring failed beside a bfloat16 model, though beacons stay in float32."""
    low = load_model(folder, device="cpu", dtype=dtype)
    run = Run(dataclasses.replace(chosen, steps=3, batch=2), low, Rows(chosen, low))
    for _ in range(3):
        run.step()
    assert all(weight.dtype == torch.float32 for weight in run.beacons.parameters())
    assert all(math.isfinite(each.loss) for each in run.measure())


def test_weights_are_written_before_anything_is_measured(
    model: Model, chosen: BeaconSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(chosen, model, Rows(chosen, model))
    monkeypatch.setattr(run, "measure", lambda: 1 / 0)
    chosen.work_dir.mkdir()
    log_of(chosen).write_text("")
    out = chosen.out
    assert out is not None
    with pytest.raises(ZeroDivisionError):
        finish(run, out)
    assert find_beacons(model.spec, str(out)).window == 64


def test_train_writes_weights_that_a_reading_uses_and_resume_equals_uninterrupted(
    model: Model, chosen: BeaconSettings, tmp_path: Path
) -> None:
    whole = trained_and_resumed(train, dataclasses.replace(chosen, steps=6), tmp_path)
    assert "no beacons, all of it" in whole.with_suffix(".md").read_text()
    assert f"({whole.stem}.svg)" in whole.with_suffix(".md").read_text()
    assert whole.with_suffix(".svg").read_text().count("<polyline") == 3
    command = bench_command(whole)
    assert f"--model {chosen.model} " in command
    named = variant(command.split()[-1], 64).settings()
    assert (named["weights"], named["window"]) == (str(whole), 64)
    ids = torch.randint(4, 260, (200,))
    method = make_method("beacon", budget=64, ratio=8, window=64, weights=str(whole))
    reader = Reader(model, method, ids)
    for _ in reader.run():
        pass
    total = reader.total
    assert reader.context().usage().entries["device"] == total // 64 * 8 + total % 64 + total % 64 // 8


def test_rows_are_text_first_and_questions_later(model: Model, chosen: BeaconSettings, tmp_path: Path) -> None:
    rows = Rows(chosen, model)
    plain, asked = rows.draw(4, plain=True), rows.draw(4, plain=False)
    end = model.tokenizer.eos_token_id
    assert model.decode(plain.ids[:-1].tolist()).rstrip().endswith("lives a cat.")
    assert int(plain.ids[-1]) == end
    prefix = len(model.chat.prefix)
    assert plain.weights.tolist() == [0.0] * prefix + [-1.0] * (len(plain.ids) - prefix)
    wide = Rows(dataclasses.replace(chosen, window=96), model).draw(4, plain=True)
    assert prefix < 96
    assert wide.weights.tolist() == [0.0] * 96 + [-1.0] * (len(wide.ids) - 96), "no beacon helps the first window"
    row = {"text": "A cat. " * 90, "question": "Who?", "answer": "A cat."}
    long = tmp_path / "long.jsonl"
    long.write_text((json.dumps(row) + "\n") * 4)
    cut = Rows(dataclasses.replace(chosen, data=long), model).draw(0, plain=True)
    assert len(cut.ids) == 256
    assert int(cut.ids[-1]) != end, "a text that goes on does not end"
    said = model.decode(asked.ids[asked.weights > 0].tolist())
    assert said.startswith("Cat ")
    assert int(asked.ids[-1]) == end
    assert f"house {said[4:-1]}?" in model.decode(asked.ids.tolist())


def test_generated_examples_ask_about_their_document(
    chosen: BeaconSettings, settings: PocketSettings, materials: Materials, library: Path
) -> None:
    network = LlamaForCausalLM(model_config(settings, materials.builder()))
    model = Model(network, materials.tokenizer, "pocket", "-")
    generated = Generated(
        dataclasses.replace(chosen, data=None, data_dir=library, pocket_dir=settings.work_dir, max_tokens=512), model
    )
    for number in range(3):
        this, again = generated.draw(number, plain=False), generated.draw(number, plain=False)
        assert torch.equal(this.ids, again.ids)
        assert bool((this.weights > 0).any())
        assert len(this.ids) <= 512
        text = generated.draw(number, plain=True)
        assert not torch.equal(this.ids, text.ids)
        assert not bool(text.weights[:64].any())
        assert bool(text.weights[64:].any())
    assert not torch.equal(generated.held_out(0).ids, generated.draw(0, plain=False).ids)


def test_what_is_missing_is_named(chosen: BeaconSettings) -> None:
    with pytest.raises(SettingsError, match="without --resume"):
        train(dataclasses.replace(chosen, resume=True))
    with pytest.raises(SettingsError, match="give a file for them"):
        train(dataclasses.replace(chosen, model="someone/a-model", out=None))


def test_examples_must_outlast_a_window(
    chosen: BeaconSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: a training with short texts ran to its end and taught beacons nothing."""
    with pytest.raises(SettingsError, match=r"at most 256 tokens end within a window of 256.*raise --max-tokens"):
        train(dataclasses.replace(chosen, window=256))
    rows = tmp_path / "short.jsonl"
    short = json.dumps({"text": "A cat. " * 10, "question": "Who?", "answer": "A cat."})
    rows.write_text((short + "\n") * 40)
    with pytest.raises(SettingsError, match="None of the first 32 examples is longer than a window of 512"):
        train(dataclasses.replace(chosen, data=rows, window=512, max_tokens=1024))
    long = json.dumps({"text": "A cat. " * 90, "question": "Who?", "answer": "A cat."})
    rows.write_text((short + "\n") * 35 + (long + "\n") * 5)
    train(dataclasses.replace(chosen, data=rows, window=512, max_tokens=1024, steps=1, warmup=0))
    assert "examples only 5 are longer than a window of 512 tokens" in caplog.text


@pytest.mark.parametrize(
    ("kind", "why"), [("lfm2", "recurrent layers would carry them on"), ("gemma2", "has layers with a sliding window")]
)
def test_models_that_cannot_have_beacons_are_refused(
    chosen: BeaconSettings, tmp_path: Path, kind: str, why: str
) -> None:
    AutoModelForCausalLM.from_config(small_config(kind)).save_pretrained(tmp_path / kind)
    byte_tokenizer().save_pretrained(tmp_path / kind)
    with pytest.raises(EngineError, match=why):
        train(dataclasses.replace(chosen, model=str(tmp_path / kind)))


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"warmup": 24},
        {"muon_rate": 0.0},
        {"plain_share": 2.0},
        {"window": 40},
        {"max_tokens": 9},
        {"quantize": "nf4"},
    ],
)
def test_impossible_settings_are_refused(change: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        BeaconSettings(**{"steps": 24, "warmup": 2, **change})
