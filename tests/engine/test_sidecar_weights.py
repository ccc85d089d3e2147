"""Sidecar weights are loaded once for all users and checked once; bad files are refused."""

from __future__ import annotations

import dataclasses
import resource
import signal
import weakref
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from engine import Model, WeightsError, make_method
from engine.models.rope import NoRope
from engine.trained import sidecar_weights
from engine.trained.beacons import FILE as BEACONS
from engine.trained.beacons import Beacons, find_beacons
from engine.trained.retaining import FILE as HEADS
from engine.trained.retaining import RetainingHeads, find_heads
from engine.trained.sidecar_weights import save_weights


def test_weights_are_shared_by_all_who_use_them_and_go_with_the_last(model: Model, tmp_path: Path) -> None:
    heads, beacons = tmp_path / "heads.safetensors", tmp_path / "beacons.safetensors"
    save_weights(RetainingHeads(model.spec, [16] * len(model.spec.layers)), heads, model.spec, {})
    save_weights(Beacons(model.spec), beacons, model.spec, {})
    first = find_heads(model.spec, str(heads))
    assert not any(weight.requires_grad for weight in first.parameters())
    digest = first.digest
    assert find_beacons(model.spec, str(beacons)).digest != digest
    others = find_heads(model.spec, "")  # of the file that replaced the first
    assert find_heads(model.spec, str(heads)) is first is not others
    weight = weakref.ref(first.layers[0].fc1.weight)
    del first
    assert weight() is None, "weights of a model that is gone stayed on its device"
    assert find_heads(model.spec, str(heads)).digest == digest


def test_an_activation_with_weights_of_its_own_is_as_it_was_made(model: Model, tmp_path: Path) -> None:
    """Regression: heads for Apertus, whose xIELU has weights in no file, were trained but not found."""
    spec = dataclasses.replace(model.spec, activation="xielu")
    made = RetainingHeads(spec, [16] * len(spec.layers)).bfloat16().float()
    save_weights(made, tmp_path / HEADS, spec, {})
    found = find_heads(spec, str(tmp_path / HEADS))
    layer = spec.layers[0]
    q, k, v = (torch.randn(heads, 3, layer.head_size) for heads in (layer.query_heads, *[layer.kv_heads] * 2))
    torch.testing.assert_close(found.score(0, q, k, v), made.score(0, q, k, v))
    assert {weight.device for weight in found.state_dict().values()} == {spec.device}


@pytest.mark.parametrize("name", ["locret", "recall", "beacon"])
def test_digests_are_worked_out_once_and_load_nothing(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Regression: each change of the form for a new reading read all weights for a planned model.

    It also released those in use, so that the next memory put them on the GPU once more.
    """
    save_weights(RetainingHeads(model.spec, [8] * len(model.spec.layers)), tmp_path / HEADS, model.spec, {})
    save_weights(Beacons(model.spec), tmp_path / BEACONS, model.spec, {})
    loaded = dataclasses.replace(model.spec, folder=tmp_path)
    find = find_beacons if name == "beacon" else find_heads
    used, read = find(loaded, ""), []
    monkeypatch.setattr(sidecar_weights, "_read", lambda kind, file: read.append(file))
    for device, dtype in (("cuda", torch.bfloat16), ("cpu", torch.float32), ("meta", torch.float16)):
        layers = tuple(dataclasses.replace(layer, rope=NoRope()) for layer in loaded.layers)
        place = torch.device(device)
        planned = dataclasses.replace(loaded, layers=layers, device=place, dtype=dtype, embedding="")
        assert make_method(name).weights_digest(planned) == used.digest
    assert find(loaded, "") is used
    assert not read


def test_digests_are_of_the_file_as_it_is_now(model: Model, tmp_path: Path) -> None:
    path, layers = tmp_path / "heads.safetensors", len(model.spec.layers)
    method = make_method("locret", heads=str(path))
    save_weights(RetainingHeads(model.spec, [16] * layers), path, model.spec, {})
    before = method.weights_digest(model.spec)
    save_weights(RetainingHeads(model.spec, [8] * layers), path, model.spec, {})
    assert method.weights_digest(model.spec) == find_heads(model.spec, str(path)).digest != before
    with pytest.raises(WeightsError, match=f"this model has {layers - 1}"):
        method.weights_digest(dataclasses.replace(model.spec, layers=model.spec.layers[1:]))


FIRST = "model.layers.0.self_attn.fc1.weight"


def heads_with(model: Model, path: Path, changed: object) -> Path:
    """Save a file of heads with another first tensor."""
    heads = RetainingHeads(model.spec, [16] * len(model.spec.layers))
    weights = {name: weight.detach() for name, weight in heads.named_weights().items()} | {FIRST: changed}
    if path.suffix == ".safetensors":
        save_file(weights, path)
    else:
        torch.save(weights, path)
    return path


@pytest.mark.parametrize(
    ("first", "named"),
    [
        (torch.tensor(1.0), r"of the shape \[\]"),
        (torch.ones(0, 80), r"of the shape \[0, 80\]"),
        (torch.ones(16, 80, dtype=torch.int8), "of the type int8"),
        (torch.full((16, 80), float("nan")), "not finite"),
        (torch.full((16, 80), float("inf")).half(), "not finite"),
    ],
    ids=["no-dimension", "no-width", "int8", "nan", "inf"],
)
def test_tensors_that_are_no_weights_are_refused_by_name(
    model: Model, tmp_path: Path, first: Tensor, named: str
) -> None:
    path = heads_with(model, tmp_path / "heads.safetensors", first)
    with pytest.raises(WeightsError, match=rf"layers\.0\.self_attn\.fc1\.weight in .* is {named}"):
        find_heads(model.spec, str(path))


def test_what_is_no_tensor_is_refused(model: Model, tmp_path: Path) -> None:
    path = heads_with(model, tmp_path / "heads.bin", 3)
    with pytest.raises(WeightsError, match=r"fc1\.weight in .* is of the type int and no tensor"):
        find_heads(model.spec, str(path))
    torch.save([torch.ones(3)], tmp_path / "list.bin")
    with pytest.raises(WeightsError, match="it holds a list and not tensors"):
        find_heads(model.spec, str(tmp_path / "list.bin"))


def test_other_files_of_a_folder_do_not_speak_for_the_one_that_is_meant(model: Model, tmp_path: Path) -> None:
    other = dataclasses.replace(model.spec, embedding="0123456789")
    save_weights(Beacons(model.spec), tmp_path / "a.safetensors", model.spec, {"window": "128"})
    save_weights(RetainingHeads(other, [16] * len(other.layers)), tmp_path / "b.safetensors", other, {"window": "64"})
    assert find_beacons(model.spec, str(tmp_path)).window == 128
    with pytest.raises(WeightsError, match=r"retaining heads in .* for another model"):
        find_heads(model.spec, str(tmp_path))


def test_a_folder_without_weights_is_named_as_one(model: Model, tmp_path: Path) -> None:
    """Regression: the message said that the folder does not exist."""
    (tmp_path / "model.bin").touch()
    with pytest.raises(WeightsError, match="no safetensors file lies in"):
        find_beacons(model.spec, str(tmp_path))


def test_weights_that_cannot_be_written_leave_the_old_ones(model: Model, tmp_path: Path) -> None:
    """Regression: a full disk, here a limit on file sizes, ended a training in a traceback."""
    path = tmp_path / "heads.safetensors"
    save_weights(RetainingHeads(model.spec, [4] * len(model.spec.layers)), path, model.spec, {})
    old, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(old), limits[1]))
    try:
        with pytest.raises(WeightsError, match=r"heads\.safetensors cannot be written .*saved before is intact"):
            save_weights(RetainingHeads(model.spec, [64] * len(model.spec.layers)), path, model.spec, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]
