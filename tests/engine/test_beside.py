"""Weights beside a model are loaded once, kind by kind, until someone lets go of them."""

from __future__ import annotations

from pathlib import Path

from engine import Model
from engine.beacons import Beacons, find_beacons, save_beacons
from engine.beside import forget
from engine.retaining import RetainingHeads, find_heads, save_heads


def test_what_was_found_last_is_shared_until_it_is_let_go(model: Model, tmp_path: Path) -> None:
    heads, beacons = tmp_path / "heads.safetensors", tmp_path / "beacons.safetensors"
    save_heads(RetainingHeads(model.spec, [16] * len(model.spec.layers)), heads, model.spec, {})
    save_beacons(Beacons(model.spec), beacons, model.spec, {})
    first = find_heads(model.spec, str(heads))
    assert not any(weight.requires_grad for weight in first.parameters())
    assert find_beacons(model.spec, str(beacons)).digest != first.digest
    assert find_heads(model.spec, str(heads)) is first
    forget()
    again = find_heads(model.spec, str(heads))
    assert again is not first
    assert again.digest == first.digest
