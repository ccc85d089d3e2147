"""Training of retaining heads: labels, falling loss, resuming, usable heads."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaForCausalLM

from benchmarks.options import variant
from engine import Model, OutOfMemory, Reader, SettingsError, load_model, make_method
from engine.trained.retaining import FILE, find_heads
from tests.engine.conftest import tiny_config
from tests.training.conftest import example
from tests.training.resuming import Interrupted, bench_command, trained_and_resumed
from training import checkpoint
from training.locret import LocretSettings, Progress, train
from training.locret.examples import Generated, Rows, repeated
from training.locret.labels import overlap, watch
from training.locret.train import Run
from training.pocket.documents import Row as DataRow
from training.pocket.prepare import Materials
from training.pocket.settings import PocketSettings
from training.pocket.train import model_config

POCKET = Path(__file__).resolve().parents[2] / "assets" / "pocket"


@pytest.fixture
def chosen(folder: Path, data: Path, tmp_path: Path) -> LocretSettings:
    return LocretSettings(
        model=str(folder),
        data=data,
        out=tmp_path / FILE,
        work_dir=tmp_path / "work",
        device="cpu",
        steps=40,
        warmup=5,
        rate=2e-2,
        width=16,
        max_tokens=256,
        chunk=50,
        held_out=3,
    )


@pytest.mark.parametrize("labels", ["answer", "reconstruction"])
def test_chunks_change_neither_labels_nor_gradients(model: Model, chosen: LocretSettings, labels: str) -> None:
    found: list[tuple[list[Tensor], list[Tensor]]] = []
    this = repeated(model, example(140).ids) if labels == "reconstruction" else example()
    for chunk in (7, 1000):
        run = Run(dataclasses.replace(chosen, chunk=chunk, alpha=0.5), model, Rows(chosen, model))
        seen = watch(model, this, chunk, window=30)
        loss = run.pass_over(seen, range(seen.prompt), 1.0)
        gradients = [p.grad.clone() for p in run.heads.parameters() if p.grad is not None]
        assert loss.smoothing > 0
        found.append((seen.labels, gradients))
    for one, whole in zip(found[0][0] + found[0][1], found[1][0] + found[1][1], strict=True):
        torch.testing.assert_close(one, whole, atol=1e-5, rtol=1e-4)


def test_loss_and_gradients_are_those_of_equation_3(model: Model, chosen: LocretSettings) -> None:
    """Compare with the formula written out: Smooth-L1 plus alpha times squared differences."""
    run = Run(dataclasses.replace(chosen, alpha=0.5), model, Rows(chosen, model))
    seen = watch(model, example(), 50)
    seen.labels = [labels / 4 for labels in seen.labels]  # so that some are near enough for the square
    found = run.pass_over(seen, range(60), 0.25)
    gradients = [p.grad.clone() for p in run.heads.parameters() if p.grad is not None]
    weights = [weight.detach().requires_grad_() for weight in run.heads.named_weights().values()]
    scores = []
    for layer in range(3):
        q, k, v = seen.inputs(layer, 0, 60)
        joined = torch.cat([each[head] for each in (q, k, v) for head in range(len(each))], dim=1)
        hidden = joined @ weights[2 * layer].T
        scores.append((hidden / (1 + torch.exp(-hidden)) @ weights[2 * layer + 1].T).T)
    score = torch.cat(scores)
    off = (score - torch.cat(seen.labels)).abs()
    assert bool((off > 1).any())
    assert bool((off < 1).any())
    regression = torch.where(off < 1, off**2 / 2, off - 0.5).mean()
    smoothing = ((score[:, :-1] - score[:, 1:]) ** 2).mean()
    assert found.regression == pytest.approx(float(regression.detach()), rel=1e-4)
    assert found.smoothing == pytest.approx(float(smoothing.detach()), rel=1e-4)
    expected = torch.autograd.grad(0.25 * (regression + 0.5 * smoothing), weights)
    assert len(gradients) == len(weights) == 6
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-3)


def test_no_gradient_is_larger_than_half(model: Model, chosen: LocretSettings) -> None:
    run = Run(dataclasses.replace(chosen, alpha=1e4), model, Rows(chosen, model))
    run.step()
    largest = max(float(p.grad.abs().max()) for p in run.heads.parameters() if p.grad is not None)
    assert largest == 0.5


def test_the_rate_rises_and_falls_in_lines(model: Model, chosen: LocretSettings) -> None:
    run = Run(dataclasses.replace(chosen, steps=10, warmup=4, rate=1.0), model, Rows(chosen, model))
    rates = []
    for run.steps in range(10):
        rates.append(run.rate())
    assert rates == pytest.approx([1 / 4, 2 / 4, 3 / 4, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])


def test_overlap_counts_the_top_tenth() -> None:
    label = torch.arange(40.0).expand(2, 40)
    assert overlap(label, label) == 1.0
    assert overlap(-label, label) == 0.0
    half = label.clone()
    half[:, 38:] = -1.0  # two of the four best are missed
    assert overlap(half, label) == 0.5


def test_loss_falls_and_overlap_rises(model: Model, chosen: LocretSettings) -> None:
    run = Run(chosen, model, Rows(chosen, model))
    before = run.measure()
    lines = [run.step() for _ in range(40)]
    after = run.measure()
    assert lines[-1].loss < 0.5 * lines[0].loss
    assert after.regression < 0.6 * before.regression
    assert after.overlap > before.overlap + 0.2
    assert lines[-1].rate < lines[4].rate == chosen.rate


@pytest.mark.parametrize("labels", ["answer", "reconstruction"])
def test_train_writes_heads_that_a_reading_uses_and_resume_equals_uninterrupted(
    model: Model, chosen: LocretSettings, tmp_path: Path, labels: str
) -> None:
    chosen = dataclasses.replace(chosen, steps=12, labels=labels, window=40, parts=2, passes=2, measure_every=5)
    if labels == "reconstruction":  # needs no questions
        assert chosen.data is not None
        rows = [json.loads(line)["text"] for line in chosen.data.read_text().splitlines()]
        chosen = dataclasses.replace(chosen, data=tmp_path / "texts.jsonl")
        (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in rows))
    whole = trained_and_resumed(train, chosen, tmp_path)
    log = [json.loads(line) for line in (chosen.work_dir / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log if line["held_out_loss"]] == [5, 10]
    assert log[9]["held_out_loss"] < log[4]["held_out_loss"]
    assert "top-10 % overlap" in whole.with_suffix(".md").read_text()
    assert f"({whole.stem}.svg)" in whole.with_suffix(".md").read_text()
    assert whole.with_suffix(".svg").read_text().count("<polyline") == 2
    command = bench_command(whole)
    assert f"--model {chosen.model} " in command
    assert variant(command.split()[-1], 64).settings()["heads"] == str(whole)
    reader = Reader(model, make_method("locret", budget=64, local=8, heads=str(whole)), example(200).ids)
    for _ in reader.run():
        pass
    assert reader.context().usage().entries["device"] == 72


def test_heads_that_no_memory_holds_are_refused_with_the_numbers(chosen: LocretSettings) -> None:
    """Regression: `--width 100000000` ended in a traceback that advised a smaller budget."""
    with pytest.raises(SettingsError, match=r"width 100,000,000 has [\d,]+ weights, which take [\d,.]+ GB"):
        train(dataclasses.replace(chosen, width=10**8))
    assert not chosen.work_dir.exists()


def test_heads_that_were_there_are_kept_beside_the_new_ones(
    begun: LocretSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: without --out, training replaced the heads that ship."""
    assert begun.out is not None
    files = [begun.out.with_suffix(suffix) for suffix in (".safetensors", ".md", ".svg")]
    left = [file.read_bytes() for file in files]
    train(begun)
    assert [file.read_bytes() for file in files] != left
    assert [file.with_stem(f"{file.stem}.before").read_bytes() for file in files] == left
    assert f"{begun.out.stem}.before.safetensors" in caplog.text


@pytest.fixture
def begun(chosen: LocretSettings) -> LocretSettings:
    """Return settings that continue from a checkpoint of two steps."""
    short = dataclasses.replace(chosen, steps=2, warmup=1, held_out=1, max_tokens=256)
    train(short)
    return dataclasses.replace(short, steps=3, resume=True)


def test_a_run_goes_on_only_as_it_was_begun(begun: LocretSettings, folder: Path, data: Path, tmp_path: Path) -> None:
    """Regression: heads of one model got the header of another, and a card the wrong number of steps."""
    torch.manual_seed(5)
    other = shutil.copytree(folder, tmp_path / "other")
    LlamaForCausalLM(tiny_config()).save_pretrained(other)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(data.read_text() * 2)
    ours, theirs = (load_model(each, device="cpu").spec.embedding[:8] for each in (folder, other))
    for change, named in (
        ({"model": str(other)}, f"embeddings of the model {ours} there, {theirs} here"),
        ({"seed": 3}, "seed 20 there, 3 here"),
        ({"data": rows}, rf"data rows.jsonl of {data.stat().st_size:,} bytes there, rows.jsonl of"),
        ({"held_out": 2}, "held_out 1 there, 2 here"),
        ({"batch": 2}, "batch 1 there, 2 here"),
        ({"max_tokens": 300}, "max_tokens 256 there, 300 here"),
        ({"labels": "turn"}, "labels answer there, turn here"),
        ({"width": 8}, r"widths \[16, 16, 16\] there, \[8, 8, 8\] here"),
        ({"steps": 1, "warmup": 0}, "2 steps on, and steps is 1"),
    ):
        with pytest.raises(SettingsError, match=named):
            train(dataclasses.replace(begun, **change))
    assert train(begun).is_file()


def test_a_run_that_begins_anew_leaves_no_checkpoint_of_the_one_before(begun: LocretSettings) -> None:
    """Regression: a run stopped before its first checkpoint continued the run before it."""

    def stop(progress: Progress) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        train(dataclasses.replace(begun, resume=False), stop)
    with pytest.raises(SettingsError, match="There is no checkpoint"):
        train(begun)


def test_a_run_that_begins_anew_keeps_what_the_one_before_left(begun: LocretSettings) -> None:
    """Regression: a run without --resume lost all earlier steps."""
    files = [begun.work_dir / name for name in ("checkpoint.safetensors", "log.jsonl")]
    left = [file.read_bytes() for file in files]
    train(dataclasses.replace(begun, resume=False, seed=7))
    assert [file.read_bytes() for file in files] != left
    for file in files:
        file.with_stem(f"{file.stem}.before").replace(file)
    assert [file.read_bytes() for file in files] == left
    assert train(begun).is_file()


def test_memory_that_runs_out_in_a_step_is_told_with_what_takes_less(
    begun: LocretSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it ended in a traceback that advised a smaller budget, which no training has."""

    def run_out(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    saved = (begun.work_dir / "checkpoint.safetensors").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", run_out)
        with pytest.raises(OutOfMemory, match=r"step 3, with examples of up to 256 tokens.*--max-tokens.*--resume"):
            train(begun)
        with pytest.raises(OutOfMemory, match=r"step 1, .*--max-tokens\.$"):
            train(dataclasses.replace(begun, resume=False))
    kept = begun.work_dir / "checkpoint.before.safetensors"
    assert kept.read_bytes() == saved


def test_what_is_no_checkpoint_of_heads_is_named(begun: LocretSettings) -> None:
    path = begun.work_dir / "checkpoint.safetensors"
    whole = path.read_bytes()
    checkpoint.save(path, checkpoint.load(path) | {"basis": {"kind": "beacon"}})
    with pytest.raises(SettingsError, match="of beacon, and this training is of locret"):
        train(begun)
    checkpoint.save(path, {"network": torch.ones(3), "steps": 4})
    with pytest.raises(SettingsError, match="of another training, or of an earlier version"):
        train(begun)
    save_file({"x": torch.ones(3)}, path)
    with pytest.raises(SettingsError, match="no checkpoint"):
        train(begun)
    for content in (whole[:-100], whole[:50], b""):
        path.write_bytes(content)
        with pytest.raises(SettingsError, match=r"damaged.*without --resume"):
            train(begun)


def test_heads_are_trained_for_a_model_in_four_bits(chosen: LocretSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bitsandbytes")
    asked = {}

    def load(source: str, **how: str) -> Model:
        asked.update(how)
        return load_model(source, **how)

    monkeypatch.setattr(sys.modules[Run.__module__], "load_model", load)
    packed = train(dataclasses.replace(chosen, steps=6, warmup=2, held_out=1, quantize="nf4"))
    assert asked == {"device": "cpu", "quantize": "nf4"}
    heads = find_heads(load_model(chosen.model, device="cpu", quantize="nf4").spec, str(packed))
    assert heads.widths == [16, 16, 16]
    assert "in nf4 while they were trained" in packed.with_suffix(".md").read_text()
    assert f"--model {chosen.model} --quantize nf4 --methods" in bench_command(packed)


def test_rows_are_put_in_the_words_of_the_template(model: Model, chosen: LocretSettings) -> None:
    rows = Rows(chosen, model)
    this = rows.draw(4)
    text = model.decode(this.ids.tolist())
    assert "there lives a cat" in text
    said = model.decode(this.ids[this.prompt :].tolist())
    assert said.startswith("Cat ")
    assert f"house {said[4:-1]}?" in text
    assert this.asking.nonzero().flatten().tolist() == list(range(this.prompt - 1, len(this.ids)))
    turn = Rows(dataclasses.replace(chosen, labels="turn"), model).draw(4)
    assert torch.equal(turn.ids, this.ids)
    assert turn.asking.nonzero().flatten().tolist() == list(range(turn.prompt, len(turn.ids)))
    assert model.decode(turn.ids[turn.prompt :].tolist()).endswith(f"house {said[4:-1]}?{said}")
    drawn = {tuple(rows.draw(number).ids.tolist()) for number in range(40)}
    held = {tuple(rows.held_out(number).ids.tolist()) for number in range(3)}
    assert len(drawn) == 17
    assert not drawn & held


def test_long_texts_are_cut_and_questions_are_not(model: Model, chosen: LocretSettings, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    row = {"text": "word " * 400, "question": "What is it, at the very end of it all?", "answer": "A word."}
    path.write_text((json.dumps(row) + "\n") * 5)
    this = Rows(dataclasses.replace(chosen, data=path), model).draw(0)
    assert len(this.ids) == 256
    assert "very end of it all?" in model.decode(this.ids.tolist())


def test_no_example_is_longer_than_the_window_of_the_model(
    model: Model, chosen: LocretSettings, tmp_path: Path
) -> None:
    """Regression: models with a window of 2,048 were trained on 10,240 tokens at once."""
    path = tmp_path / "long.jsonl"
    row = {"text": "a word " * 2 * model.spec.window, "question": "What?", "answer": "A word."}
    path.write_text(f"{json.dumps(row)}\n" * 5)
    most = LocretSettings.max_tokens
    assert model.spec.window < most
    rows = Rows(dataclasses.replace(chosen, data=path, max_tokens=most), model)
    assert len(rows.draw(0).ids) == model.spec.window


def test_generated_examples_ask_about_their_document(
    chosen: LocretSettings, settings: PocketSettings, materials: Materials, library: Path
) -> None:
    network = LlamaForCausalLM(model_config(settings, materials.builder()))
    model = Model(network, materials.tokenizer, "pocket", "-")
    generated = Generated(
        dataclasses.replace(chosen, data=None, data_dir=library, pocket_dir=settings.work_dir, max_tokens=512), model
    )
    for number in range(3):
        this = generated.draw(number)
        again = generated.draw(number)
        assert torch.equal(this.ids, again.ids)
        asking = this.asking.nonzero().flatten()
        assert int(asking.min()) >= this.prompt
        assert this.prompt < len(this.ids) <= 512
        assert "Answer questions about the text below" in model.decode(this.ids[: this.prompt].tolist())
    assert not torch.equal(generated.held_out(0).ids, generated.draw(0).ids)


def test_answers_look_with_all_their_tokens_and_the_one_before(
    chosen: LocretSettings, settings: PocketSettings, materials: Materials, library: Path
) -> None:
    """The query of the last token counts, as in the paper; no query of the question does."""
    model = Model(LlamaForCausalLM(model_config(settings, materials.builder())), materials.tokenizer, "pocket", "-")
    made = dataclasses.replace(chosen, data=None, data_dir=library, pocket_dir=settings.work_dir, max_tokens=512)
    generated = Generated(made, model)
    weights = np.array([0, 0, 0, 0, 0, 1, 1, 0, 0, 0.5, 0, 0], np.float32)
    row = DataRow(ids=np.arange(12), weights=weights, document=3, used=11)
    generated._builder.build = lambda rng, recipe: row  # type: ignore[method-assign]
    assert generated.draw(0).asking.nonzero().flatten().tolist() == [4, 5, 6, 8, 9]
    turns = Generated(dataclasses.replace(made, labels="turn"), model)
    turns._builder.build = lambda rng, recipe: row  # type: ignore[method-assign]
    assert turns.draw(0).asking.nonzero().flatten().tolist() == list(range(3, 11))


def test_the_shipped_model_needs_no_prose_of_its_own_training(
    chosen: LocretSettings, settings: PocketSettings, materials: Materials, library: Path, tmp_path: Path
) -> None:
    shipped = load_model(str(POCKET))
    made = dataclasses.replace(chosen, data=None, data_dir=library, pocket_dir=tmp_path / "none", max_tokens=512)
    this = Generated(made, shipped).draw(0)
    assert "Answer questions about the text below" in shipped.decode(this.ids[: this.prompt].tolist())
    assert materials.tokenizer.get_vocab() != shipped.tokenizer.get_vocab()
    with pytest.raises(SettingsError, match="tokenised for another model"):
        Generated(dataclasses.replace(made, pocket_dir=settings.work_dir), shipped)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ('{"text": "a", "question": "b"}\n', "Line 1"),
        ('{"text": "a", "question": "b", "answer": "c"}\nnonsense\n', "Line 2"),
        ('{"text": "a", "question": "b", "answer": 3}\n', "Line 1"),
        ('{"text": "a", "question": "b", "answer": "c"}\n', "1 rows, and 3 are held out"),
        (  # which ended a training in the middle, and again whenever it was resumed
            '{"text": "a", "question": "b", "answer": "c"}\n{"text": "a", "question": "%s", "answer": "c"}\n'
            % ("word " * 300),
            r"Line 2 .*question of .* tokens leaves no room for its text in 256 tokens: shorten it",
        ),
    ],
)
def test_bad_data_is_named(model: Model, chosen: LocretSettings, tmp_path: Path, content: str, named: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(SettingsError, match=named):
        Rows(dataclasses.replace(chosen, data=path), model)


def test_what_is_missing_is_named(chosen: LocretSettings, model: Model, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no-such\.jsonl"):
        Rows(dataclasses.replace(chosen, data=tmp_path / "no-such.jsonl"), model)
    with pytest.raises(SettingsError, match="without --resume"):
        train(dataclasses.replace(chosen, resume=True))
    with pytest.raises(SettingsError, match="give a file for them"):
        train(dataclasses.replace(chosen, model="someone/a-model", out=None))
    (tmp_path / "file").touch()
    for out, named in ((tmp_path, "is a folder"), (tmp_path / "file" / "heads", "Nothing can be written")):
        with pytest.raises(SettingsError, match=named):  # it was found out when the training was over
            train(dataclasses.replace(chosen, out=out))
    with pytest.raises(SettingsError, match=r"Nothing can be written.*--work-dir"):
        train(dataclasses.replace(chosen, work_dir=tmp_path / "file" / "run"))
    made = dataclasses.replace(chosen, data=None, data_dir=tmp_path, pocket_dir=tmp_path / "none")
    with pytest.raises(SettingsError, match=r"for pocket models.*--data FILE\.jsonl"):
        Generated(made, model)
    with pytest.raises(SettingsError, match=r"books.*--data FILE\.jsonl"):
        Generated(made, load_model(str(POCKET)))


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"warmup": 40},
        {"rate": 0.0},
        {"rate": float("nan")},
        {"seed": -1},
        {"alpha": -1.0},
        {"max_tokens": 9},
        {"width": -1},
        {"labels": "all"},
        {"window": 0},
        {"parts": 0},
        {"passes": 0},
        {"quantize": "int2"},
    ],
)
def test_impossible_settings_are_refused(change: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        LocretSettings(**{"steps": 40, "warmup": 5, **change})
