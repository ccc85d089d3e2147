"""Threads that build and load networks at once do not disturb each other."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.models import architectures
from engine.models.building import outline
from engine.models.configuration import read_config
from engine.models.loading import load_network
from engine.models.sizes import CPU, model_sizes
from tests.engine.architectures import small_config

ROUNDS = 4


def settings() -> dict[str, Any]:
    """Return the functions and settings that transformers replaces while it builds a network."""
    names = ("kaiming_uniform_", "normal_", "uniform_", "zeros_")
    return {
        "dtype": torch.get_default_dtype(),
        "zeros": torch.zeros(1).dtype,
        "linspace": torch.linspace,
        **{name: getattr(nn.init, name) for name in names},
    }


def test_loads_and_plans_side_by_side_change_nothing_of_the_process(tmp_path: Path) -> None:
    """Regression: half of the loads failed, and a tenth of the others had the wrong dtype."""
    places = {}
    for dtype in (torch.bfloat16, torch.float32):
        places[dtype] = tmp_path / str(dtype)
        config = small_config("llama")
        config.tie_word_embeddings = True
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(places[dtype])
    before, wrong, stop = settings(), [], threading.Event()
    weights = model_sizes(read_config(places[torch.float32]), torch.float32).parameters

    def watch() -> None:
        while not stop.is_set():
            wrong.extend(name for name, value in settings().items() if value is not before[name])

    def plan() -> None:
        for _ in range(8 * ROUNDS):
            sizes = model_sizes(read_config(places[torch.float32]), torch.bfloat16)
            if sizes.parameters != weights:
                wrong.append("planned without tying its weights")

    def load(dtype: torch.dtype) -> None:
        for _ in range(ROUNDS):
            network = load_network(places[dtype], read_config(places[dtype]), CPU, dtype, "none")
            if {each.dtype for each in network.parameters()} != {dtype}:
                wrong.append(f"loaded in another dtype than {dtype}")
            if network.get_output_embeddings().weight is not network.get_input_embeddings().weight:
                wrong.append("loaded without tying its weights")

    def run(work: Callable[[], None]) -> Callable[[], None]:
        def noting() -> None:
            try:
                work()
            except Exception as error:
                wrong.append(f"{type(error).__name__}: {error}")

        return noting

    works = [plan, plan, lambda: load(torch.float32), lambda: load(torch.bfloat16)]
    threads = [threading.Thread(target=run(work)) for work in works]
    watching = threading.Thread(target=watch)
    watching.start()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    stop.set()
    watching.join()
    assert not wrong, sorted(set(wrong))
    assert settings() == before


@pytest.mark.parametrize("kind", architectures.ARCHITECTURES)
def test_a_network_is_built_as_transformers_builds_it(kind: str) -> None:
    """Check that dtypes equal those under a default dtype of the whole process."""
    config = small_config(kind)
    config.dtype = None
    torch.set_default_dtype(torch.bfloat16)
    try:
        theirs = outline(config)
    finally:
        torch.set_default_dtype(torch.float32)
    config.dtype = torch.bfloat16
    assert dtypes(outline(config)) == dtypes(theirs)


def dtypes(network: PreTrainedModel) -> dict[str, torch.dtype]:
    return {name: each.dtype for name, each in [*network.named_parameters(), *network.named_buffers()]}
