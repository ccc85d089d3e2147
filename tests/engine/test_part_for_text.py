"""Vision models: their text part is used alone, and equals the whole model on a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from engine import ModelNotFound, UnsupportedModel, load_model
from engine.models import architectures
from engine.models.configuration import read_config
from engine.models.sizes import model_sizes
from tests.engine.architectures import EXTRA, SMALL, small_config
from tests.engine.checkpoints import OWN, SEEING, TEXT, VISION, through
from tests.engine.conftest import byte_tokenizer

WITHOUT_EYES = "gemma3n"  # its eyes need a package that is not installed
every_kind = pytest.mark.parametrize("kind", sorted(architectures.VISION - {WITHOUT_EYES}))


def saved(kind: str, folder: Path, **facts: Any) -> PreTrainedModel:
    """Save a random model of a kind in a folder, with a tokenizer."""
    torch.manual_seed(0)
    text = {**SMALL, **EXTRA.get(TEXT[kind], {}), "model_type": TEXT[kind]}
    config = AutoConfig.for_model(kind, text_config=text, vision_config=VISION | SEEING[kind], **OWN[kind], **facts)
    network: PreTrainedModel = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    network.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return network


def logits_of(folder: Path, ids: torch.Tensor, quantize: str = "none") -> torch.Tensor:
    """Return logits [T, vocabulary] of tokens that pass in pieces."""
    return through(load_model(folder, "cpu", quantize=quantize), ids, [37, 37, 37, 37, 2])


@every_kind
@pytest.mark.parametrize("inside", [False, True], ids=["beside", "inside"])
def test_a_text_is_read_as_by_the_whole(kind: str, inside: bool, tmp_path: Path) -> None:
    """Compare the logits. inside: the checkpoint names the part within the model's body, as newer ones do."""
    network = saved(kind, tmp_path)
    if inside:
        weights = load_file(tmp_path / "model.safetensors")
        names = {name: name.replace("language_model.model.", "model.language_model.") for name in weights}
        names |= {name: "lm_head.weight" for name in weights if name == "language_model.lm_head.weight"}
        assert any(name.startswith("model.language_model.") for name in names.values())
        save_file({names[name]: weight for name, weight in weights.items()}, tmp_path / "model.safetensors")
    ids = torch.randint(4, 250, (150,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = network(input_ids=ids[None]).logits[0]
    assert expected.std() > 1e-3
    torch.testing.assert_close(logits_of(tmp_path, ids), expected, atol=5e-6, rtol=2e-5)
    assert 0.001 < (logits_of(tmp_path, ids, "nf4") - expected).norm() / expected.norm() < 1


def test_a_part_for_text_is_read_without_the_package_for_eyes(tmp_path: Path) -> None:
    """Cover Gemma 3n. Its files hold keys and values for layers too that take those of others."""
    text = small_config("gemma3n_text")
    AutoConfig.for_model(WITHOUT_EYES, text_config=text.to_dict()).save_pretrained(tmp_path)
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(text, attn_implementation="eager").eval()
    weights = {
        name.replace("model.", "model.language_model.", 1): weight.clone()
        for name, weight in network.state_dict().items()
        if name != "lm_head.weight"
    }
    more = {
        name.replace(".0.", ".5.", 1): weight.clone() for name, weight in weights.items() if ".0.self_attn.k" in name
    }
    assert more
    assert not more.keys() & weights.keys()
    more["model.vision_tower.timm_model.conv_stem.weight"] = torch.zeros(2, 2)
    save_file(weights | more, tmp_path / "model.safetensors", metadata={"format": "pt"})
    byte_tokenizer().save_pretrained(tmp_path)
    ids = torch.randint(4, 250, (150,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = network(input_ids=ids[None]).logits[0]
    torch.testing.assert_close(logits_of(tmp_path, ids), expected, atol=5e-6, rtol=2e-5)


@every_kind
def test_only_the_part_for_text_takes_memory(kind: str, tmp_path: Path) -> None:
    whole = saved(kind, tmp_path)
    config = read_config(tmp_path)
    assert config.model_type == TEXT[kind]
    model = load_model(tmp_path, "cpu")
    held = sum(weight.nbytes for weight in model.network.parameters())
    assert held == model_sizes(config, torch.float32).weight_bytes() < sum(each.nbytes for each in whole.parameters())


def test_that_embeddings_are_tied_may_be_said_of_the_whole_alone(tmp_path: Path) -> None:
    saved("qwen3_5", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    facts = json.loads((tmp_path / "config.json").read_text())
    assert not facts["text_config"].get("tie_word_embeddings")
    (tmp_path / "config.json").write_text(json.dumps({**facts, "tie_word_embeddings": True}))
    network = load_model(tmp_path, "cpu").network
    assert torch.equal(network.lm_head.weight, network.get_input_embeddings().weight)


def test_its_chat_template_may_lie_in_a_file_of_its_own(tmp_path: Path) -> None:
    saved("mistral3", tmp_path)
    template = byte_tokenizer().chat_template
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(UnsupportedModel, match="has no chat template"):
        load_model(tmp_path, "cpu")
    beside = tmp_path / "chat_template.json"
    beside.write_text(json.dumps({"chat_template": template}))
    assert load_model(tmp_path, "cpu").tokenizer.chat_template == template
    beside.write_text("{}")
    with pytest.raises(ModelNotFound, match="no tokenizer that can be loaded"):
        load_model(tmp_path, "cpu")


def test_one_that_was_published_quantised_is_refused(tmp_path: Path) -> None:
    saved("gemma3", tmp_path, quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(UnsupportedModel, match=r"'gptq', which is not supported of 'gemma3': .*--quantize nf4"):
        read_config(tmp_path)


def test_one_whose_part_for_text_is_of_another_architecture_is_refused_by_its_name(tmp_path: Path) -> None:
    parts = {"text_config": {**SMALL, "model_type": "gpt2"}, "vision_config": VISION | SEEING["mistral3"]}
    AutoConfig.for_model("mistral3", **parts).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match="architecture 'gpt2'"):
        read_config(tmp_path)
