"""Operations and launches of a pass per layer, counted on the simulated device: none may rise again."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

# Operations that launch a kernel, and launches of Triton, of one layer: of a pass of reading, an eager token of an
# answer whose attention is counted, and a recorded one. The seven products of the linear layers are among them. A
# figure that falls is lowered here.
MOST = {
    "truncate": {"reading": (42, 1), "token": (37, 3), "recorded": (35, 3)},
    "locret": {"reading": (48, 1), "token": (43, 2), "recorded": (41, 3)},
    "streaming": {"reading": (55, 2), "token": (48, 4), "recorded": (48, 5)},
    "infinitehip": {"reading": (161, 6), "token": (53, 5), "recorded": (53, 5)},
    "recall": {"reading": (48, 1), "token": (62, 5), "recorded": (60, 5)},
    "exact-sketched": {"reading": (62, 4), "token": (114, 8), "recorded": (96, 8)},
    "exact": {"reading": (55, 2), "token": (105, 8), "recorded": (86, 8)},
    "infllm": {"reading": (105, 4), "token": (75, 5), "recorded": (79, 6)},
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
    come = name == "infinitehip"  # all keys, for each pass
    assert counts["reading"].tables <= 2 + come, "keys and values of a window that has moved"


@pytest.mark.parametrize(("store", "most"), [("bfloat16", 2), ("int8", 4), ("int4", 4)])
def test_what_a_token_costs_the_host_to_keep_is_the_same_for_any_number_of_layers(store: str, most: int) -> None:
    """Regression: its keys and values were put into slabs, or cut into groups and quantised, layer by layer."""
    from tests.engine.counting import appended

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        few, more = pool.submit(appended, store).result()
    for found in (few, more):
        assert found.host <= most, found.where
        assert found.operations <= 3, found.where
