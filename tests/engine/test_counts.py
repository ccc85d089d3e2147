"""Operations and launches of a pass per layer, counted on the simulated device: none may rise again."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

# Operations that launch a kernel, and launches of Triton, of one layer: of a pass of reading, an eager token of an
# answer whose attention is counted, and a recorded one. The four products of the linear layers are among them. A
# figure that falls is lowered here.
MOST = {
    "truncate": {"reading": (8, 6), "token": (9, 7), "recorded": (7, 7)},
    "locret": {"reading": (14, 6), "token": (15, 6), "recorded": (13, 7)},
    "streaming": {"reading": (9, 9), "token": (8, 10), "recorded": (8, 11)},
    "infinitehip": {"reading": (93, 16), "token": (13, 11), "recorded": (13, 11)},
    "recall": {"reading": (14, 6), "token": (22, 11), "recorded": (20, 11)},
    "exact-sketched": {"reading": (16, 11), "token": (46, 17), "recorded": (40, 16)},
    "exact": {"reading": (9, 9), "token": (37, 17), "recorded": (30, 16)},
    "infllm": {"reading": (52, 12), "token": (35, 11), "recorded": (39, 12)},
}


@pytest.mark.parametrize("name", MOST)
def test_no_pass_takes_more_operations_per_layer_than_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from tests.engine.counting import per_layer

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        counts = pool.submit(per_layer, name).result()
    assert counts.keys() == MOST[name].keys()
    for kind, most in MOST[name].items():
        found = counts[kind]
        worst = found.where.most_common(8)
        assert found.operations <= most[0], f"{kind}: {found.operations} operations, {worst}"
        assert found.launches <= most[1], f"{kind}: {found.launches} launches, {worst}"
    assert counts["reading"].host == 0, counts["reading"].where
    assert counts["token"].tables == 0
    assert counts["reading"].tables <= 2, "keys and values of a window that has moved"


@pytest.mark.parametrize(("store", "most"), [("bfloat16", 2), ("int8", 4), ("int4", 4)])
def test_what_a_token_costs_the_host_to_keep_is_the_same_for_any_number_of_layers(store: str, most: int) -> None:
    """Regression: its keys and values were put into slabs, or cut into groups and quantised, layer by layer."""
    from tests.engine.counting import appended

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        few, more = pool.submit(appended, store).result()
    for found in (few, more):
        assert found.host <= most, found.where
        assert found.operations <= 3, found.where
