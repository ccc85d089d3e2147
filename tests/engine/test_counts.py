"""Operations and launches of a pass per layer, counted on the simulated device: none may rise again."""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from tests.engine.most_requests import MOST

COUNTING = "tests.engine.counting"  # imported where triton is there, and only in a process of its own


def apart(name: str, *arguments: Any) -> Any:
    """Call a function of `counting` in a fork of this process, which has only imported it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(getattr(importlib.import_module(COUNTING), name), *arguments).result()


@pytest.fixture(scope="module")
def count() -> Iterator[Callable[..., Any]]:
    """Return a function that calls functions of `counting`, each as a fresh process does; imports are paid once."""
    pytest.importorskip("triton")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), importlib.import_module, (COUNTING,)) as pool:
            yield lambda *call: pool.submit(apart, *call).result()


@pytest.mark.parametrize("name", MOST)
def test_no_pass_takes_more_operations_per_layer_than_before(name: str, count: Callable[..., Any]) -> None:
    counts = count("per_layer", name)
    assert counts.keys() == MOST[name].keys()
    for kind, most in MOST[name].items():
        found = counts[kind]
        worst = found.where.most_common(8)
        assert found.operations <= most[0], f"{kind}: {found.operations} operations, {worst}"
        assert found.launches <= most[1], f"{kind}: {found.launches} launches, {worst}"
    assert counts["reading"].host == 0, counts["reading"].where
    assert counts["token"].tables == 0
    come = 2 * (name == "infinitehip")  # of what comes to the device for a pass
    assert counts["reading"].tables <= 2 + come, "keys and values of a window that has moved"


@pytest.mark.parametrize(("store", "most"), [("bfloat16", 2), ("int8", 4), ("int4", 4)])
def test_what_a_token_costs_the_host_to_keep_is_the_same_for_any_number_of_layers(
    store: str, most: int, count: Callable[..., Any]
) -> None:
    """Regression: its keys and values were put into slabs, or cut into groups and quantised, layer by layer."""
    few, more = count("appended", store)
    for found in (few, more):
        assert found.host <= most, found.where
        assert found.operations <= 3, found.where
