"""Training of the pocket model: transformers' logits, falling loss, resuming, a loadable model."""

import dataclasses
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import SettingsError
from tests.training.conftest import TINY
from training import checkpoint
from training.pocket.ladder import last_stages
from training.pocket.network import PocketNetwork, Reading
from training.pocket.optimiser import orthogonalise
from training.pocket.prepare import Materials
from training.pocket.prose import DataMissing
from training.pocket.reader import Reader
from training.pocket.settings import PocketSettings
from training.pocket.train import Run, model_config, train


@pytest.fixture
def network(settings: PocketSettings, materials: Materials) -> PocketNetwork:
    """Return random weights large enough that attention is not flat."""
    torch.manual_seed(0)
    network = PocketNetwork(model_config(settings, materials.builder()))
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6)
    return network


def test_full_reading_equals_transformers(network: PocketNetwork) -> None:
    ids = torch.randint(5, 900, (2, 111))
    hidden = network(ids)
    expected = network.llama.model(ids, use_cache=False).last_hidden_state
    torch.testing.assert_close(hidden, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("tokens", "window"), [(63, 0), (300, 0), (300, 48)], ids=["short", "full", "exact"])
def test_reader_equals_network(network: PocketNetwork, tokens: int, window: int) -> None:
    """Compare the measuring reader, with top-k over everything, with a training pass."""
    ids = torch.randint(5, 900, (1, tokens + 12))
    reading = (
        Reading(window, 4, 47, torch.tensor([tokens]), torch.tensor([tokens + 12]), across=False) if window else None
    )
    expected = network(ids, reading=reading)[0, -1] @ network.llama.model.embed_tokens.weight.T
    reader = Reader(network, 400, window, top_k=400, distance=47)
    reader.read(ids[0, :tokens].tolist())
    with torch.no_grad():
        logits = reader._pass(ids[0, tokens:].tolist(), asking=True)
    if not window:
        torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)
    else:  # sinks are re-placed beside the window when reading for real, so only near agreement can be asked
        assert torch.nn.functional.cosine_similarity(logits, expected, dim=0) > 0.95


def test_other_documents_are_seen_only_across(network: PocketNetwork) -> None:
    ids = torch.randint(5, 900, (2, 120))
    changed = ids.clone()
    changed[1, 10:60] = torch.randint(5, 900, (50,))
    for across in (True, False):
        reading = Reading(16, 4, 15, torch.tensor([100, 100]), torch.tensor([120, 110]), across=across)
        same = torch.equal(network(ids, reading=reading)[0], network(changed, reading=reading)[0])
        assert same is not across


def test_orthogonalise_evens_out_singular_values() -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalise(torch.randn(3, 24, 48)))
    assert values.min() > 0.5
    assert values.max() < 1.4


def test_a_short_training_lowers_the_loss(settings: PocketSettings, materials: Materials) -> None:
    run = Run(dataclasses.replace(settings, tokens=10**9), materials.builder(), TINY)
    found = [run.step() for _ in range(60)]
    early, late = (sum(p.loss for p in part) / len(part) for part in (found[:5], found[-5:]))
    assert late < early - 0.8


def test_products_in_bfloat16_change_little(settings: PocketSettings, materials: Materials) -> None:
    steps = []
    for autocast in (False, True):
        run = Run(dataclasses.replace(settings, tokens=10**9, autocast=autocast), materials.builder(), TINY)
        steps.append([run.step().loss for _ in range(3)])
        assert {p.dtype for p in run.network.parameters()} == {torch.float32}
    assert steps[0] != steps[1]
    assert steps[1] == pytest.approx(steps[0], rel=0.02)


def test_resume_equals_uninterrupted(settings: PocketSettings, materials: Materials, tmp_path: Path) -> None:
    whole = Run(dataclasses.replace(settings, tokens=20000), materials.builder(), TINY)
    parts = Run(dataclasses.replace(settings, tokens=20000), materials.builder(), TINY)
    for _ in range(12):
        whole.step()
    for _ in range(6):
        parts.step()
    checkpoint.save(tmp_path / "c.safetensors", parts.state())
    resumed = Run(dataclasses.replace(settings, tokens=20000), materials.builder(), TINY)
    resumed.restore(checkpoint.load(tmp_path / "c.safetensors"))
    for _ in range(6):
        resumed.step()
    assert (resumed.steps, resumed.tokens) == (whole.steps, whole.tokens)
    for name, parameter in whole.network.named_parameters():
        assert torch.equal(parameter, dict(resumed.network.named_parameters())[name]), name
        assert torch.equal(whole.average[name], resumed.average[name]), name


def test_train_writes_a_stock_model(settings: PocketSettings, tmp_path: Path) -> None:
    seen = []
    out = train(dataclasses.replace(settings, tokens=6000, out_dir=tmp_path / "model"), seen.append, TINY)
    model = AutoModelForCausalLM.from_pretrained(out)
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.config.tie_word_embeddings
    assert model.generation_config.do_sample is False
    assert model.generation_config.eos_token_id == model.config.eos_token_id
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in out.iterdir()}
    assert seen[-1].fraction >= 1
    assert [p.step for p in seen] == list(range(1, len(seen) + 1))
    assert len((settings.work_dir / "log.jsonl").read_text().splitlines()) == len(seen)


def test_going_on_from_a_finished_model(settings: PocketSettings, materials: Materials, tmp_path: Path) -> None:
    out = train(dataclasses.replace(settings, tokens=2000, out_dir=tmp_path / "model"), stages=TINY)
    other = dataclasses.replace(settings, work_dir=tmp_path / "work", start=out, seed=7)
    run = Run(other, materials.builder(), last_stages())
    begun = {name: parameter.clone() for name, parameter in run.network.llama.named_parameters()}
    for name, parameter in AutoModelForCausalLM.from_pretrained(out).named_parameters():
        assert torch.equal(begun[name], parameter.float()), name
    assert run.step().stage == "value first"
    assert any(not torch.equal(begun[name], p) for name, p in run.network.llama.named_parameters())
    for name, parameter in run.averaged().llama.named_parameters():
        trained = run.average["llama." + name]
        torch.testing.assert_close(
            parameter, (1 - other.blend) * begun[name] + other.blend * trained, atol=1e-6, rtol=1e-5
        )


def test_missing_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"books\.jsonl\.xz"):
        train(PocketSettings(data_dir=tmp_path, work_dir=tmp_path / "work", out_dir=tmp_path / "out", workers=1))


def test_a_network_that_no_memory_holds_is_refused_with_the_numbers(settings: PocketSettings, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"has [\d,]+ weights, which take [\d,.]+ GB"):
        train(dataclasses.replace(settings, width=192 * 10**6, work_dir=tmp_path))


def test_the_weights_of_a_network_are_counted_before_it_is_made(
    settings: PocketSettings, network: PocketNetwork
) -> None:
    counted = sum(each.numel() for each in network.parameters() if each.ndim == 2)
    assert settings.weights == counted


def test_resume_without_checkpoint_is_named(settings: PocketSettings, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no checkpoint at .*: start without --resume\."):
        train(dataclasses.replace(settings, work_dir=tmp_path, resume=True))


def test_what_is_no_pocket_model_is_not_replaced(settings: PocketSettings, tmp_path: Path) -> None:
    """Regression: any folder was deleted, and the new model put in its place."""
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(SettingsError, match="would be replaced as a whole"):
        train(dataclasses.replace(settings, out_dir=tmp_path), stages=TINY)
    assert [file.name for file in tmp_path.iterdir()] == ["letters.txt"]


def test_a_model_that_is_replaced_is_kept(settings: PocketSettings, tmp_path: Path) -> None:
    out = train(dataclasses.replace(settings, tokens=2000, out_dir=tmp_path / "model"), stages=TINY)
    weights = (out / "model.safetensors").read_bytes()
    (out / "locret.safetensors").write_bytes(b"heads")
    train(dataclasses.replace(settings, tokens=4000, out_dir=out), stages=TINY)
    assert (out / "model.safetensors").read_bytes() != weights
    kept = tmp_path / "model.old"
    assert (kept / "model.safetensors").read_bytes() == weights
    assert (kept / "locret.safetensors").read_bytes() == b"heads"


def test_a_run_goes_on_only_as_it_was_begun(settings: PocketSettings, tmp_path: Path) -> None:
    """Regression: another shape ended in a traceback, and another seed continued silently."""
    train(dataclasses.replace(settings, tokens=2000, out_dir=tmp_path / "model"), stages=TINY)
    for change, named in (
        ({"width": 16}, "width 32 there, 16 here"),
        ({"seed": 3}, "seed 20 there, 3 here"),
        ({"scale": 0.5}, "scale 0.25 there, 0.5 here"),
        ({"vocabulary": 300}, "tokenised with a vocabulary of"),
    ):
        with pytest.raises(SettingsError, match=named):
            train(dataclasses.replace(settings, tokens=3000, resume=True, **change), stages=TINY)


def test_what_no_training_can_start_from_is_named(settings: PocketSettings, folder: Path, tmp_path: Path) -> None:
    """Regression: it ended in a traceback of a worker."""
    for start, named in ((tmp_path, "There is no tokenizer.json in"), (folder, "is no pocket model")):
        with pytest.raises((SettingsError, FileNotFoundError), match=named):
            train(dataclasses.replace(settings, work_dir=tmp_path / "work", start=start))
    out = train(dataclasses.replace(settings, tokens=2000, out_dir=tmp_path / "model"), stages=TINY)
    other = dataclasses.replace(settings, work_dir=tmp_path / "other", start=out)
    (out / "model.safetensors").write_bytes(b"")
    with pytest.raises(SettingsError, match="cannot be loaded"):
        train(other)
    (out / "config.json").write_text('{"model_type": "qwen2"}')
    with pytest.raises(SettingsError, match="holds no pocket model"):
        train(other)


@pytest.mark.parametrize(
    "change",
    [
        {"heads": 3, "kv_heads": 2},
        {"head_size": 15},
        {"width": 100},
        {"vocabulary": 70000},
        {"minutes": 0, "tokens": 0},
        {"window": 8},
        {"blend": 1.5},
        {"workers": 0},
        {"layers": 0},
        {"width": -1},
        {"scale": 0.0},
        {"muon_rate": 0.0},
        {"tokens": -1},
        {"minutes": float("nan")},
        {"seed": -1},
    ],
)
def test_impossible_settings_are_refused(change: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        PocketSettings(**change)
