"""Models that other programs keep on this machine, at the places of those programs."""

import json
from pathlib import Path

import pytest
from huggingface_hub import constants

from app.errors import AppError
from app.machine.found_models import find_model, found_models, ollama_file
from app.machine.local_models import local_models
from app.machine.model_names import canonical_model, check_model, model_source

DIGEST = "sha256:" + "a" * 64


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home folder of a user without models."""
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def put(path: Path, content: str = "GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def of_ollama(root: Path, *name: str, digest: str = DIGEST, kind: str = "model", blob: bool = True) -> Path:
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "b" * 64, "size": 3},
        {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": digest, "size": 4},
    ]
    put(root.joinpath("manifests", "registry.ollama.ai", *name), json.dumps({"layers": layers}))
    path = root / "blobs" / digest.replace(":", "-")
    return put(path) if blob else path


def test_nothing_is_found_where_there_is_nothing(machine: Path) -> None:
    assert found_models() == []
    assert find_model("qwen") is None
    assert find_model("ollama/qwen") is None


def test_ollamas_models_have_their_names_there(machine: Path) -> None:
    path = of_ollama(machine / ".ollama" / "models", "library", "llama3.2", "1b")
    of_ollama(machine / ".ollama" / "models", "someone", "tuned", "latest")
    names = {each.name: each.path for each in found_models()}
    assert names == {"ollama/llama3.2:1b": path, "ollama/someone/tuned:latest": path}
    assert ollama_file("ollama/llama3.2:1b") == path
    assert ollama_file("ollama/someone/tuned") == path
    assert ollama_file("ollama/llama3.2") is None


@pytest.mark.parametrize("name", ["ollama/", "ollama/../../x:y", "ollama/a/../b:c", "ollama/x:.."])
def test_a_name_leads_nowhere_else(machine: Path, name: str) -> None:
    of_ollama(machine / ".ollama" / "models", "library", "x", "y")
    assert find_model(name) is None


def test_a_manifest_that_names_no_model_is_passed_by(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine / "elsewhere"
    monkeypatch.setenv("OLLAMA_MODELS", str(root))
    of_ollama(root, "library", "adapter", "1", kind="adapter")
    of_ollama(root, "library", "gone", "1", digest="sha256:" + "c" * 64, blob=False)
    of_ollama(root, "library", "outside", "1", digest="../../../etc/passwd", blob=False)
    for number, text in enumerate(("", "[]", "{", '{"layers": [{}]}', '{"layers": 3}')):
        put(root / "manifests" / "registry.ollama.ai" / "library" / "odd" / str(number), text)
    assert found_models() == []


def test_files_of_other_programs_have_the_names_of_the_models(machine: Path) -> None:
    studio = put(machine / ".lmstudio" / "models" / "someone" / "Qwen3-GGUF" / "Qwen3-4B-Q4_K_M.gguf")
    jan = put(machine / ".local" / "share" / "Jan" / "data" / "llamacpp" / "models" / "Jan-v1-4B" / "model.gguf")
    llama = put(machine / ".cache" / "llama.cpp" / "big-00001-of-00002.gguf")
    put(machine / ".cache" / "llama.cpp" / "big-00002-of-00002.gguf")
    put(machine / ".cache" / "llama.cpp" / "mmproj-F16.gguf")
    hub = put(machine / "hub" / "models--org--small" / "snapshots" / "1" / "small.Q8_0.gguf")
    found = {each.name: (each.place, each.path) for each in found_models()}
    assert found == {
        "Qwen3-4B-Q4_K_M": ("LM Studio", studio),
        "Jan-v1-4B": ("Jan", jan),
        "big": ("llama.cpp", llama),
        "small.Q8_0": ("cache", hub),
    }
    model = find_model("big")
    assert model is not None
    assert model.path == llama


def test_two_files_of_one_name_keep_their_paths(machine: Path) -> None:
    paths = {str(put(machine / ".lmstudio" / "models" / each / "q.gguf")) for each in ("a", "b")}
    assert {each.name for each in found_models()} == paths
    assert find_model("q") is None


def test_lm_studio_may_keep_its_models_elsewhere(machine: Path) -> None:
    path = put(machine / "big-disk" / "x" / "y" / "model-q4.gguf")
    put(machine / ".lmstudio" / "settings.json", json.dumps({"downloadsFolder": str(machine / "big-disk")}))
    assert [each.path for each in found_models()] == [path]
    put(machine / ".lmstudio" / "settings.json", "no JSON")
    assert found_models() == []


def test_what_other_programs_keep_is_named_as_they_name_it(machine: Path) -> None:
    blob = of_ollama(machine / ".ollama" / "models", "library", "llama3.2", "1b")
    file = put(machine / ".lmstudio" / "models" / "someone" / "Qwen3-GGUF" / "Qwen3-4B-Q4_K_M.gguf")
    assert model_source("ollama/llama3.2:1b:nf4") == str(blob)
    assert canonical_model("ollama/llama3.2:1b:nf4") == "ollama/llama3.2:1b:nf4"
    assert canonical_model("Qwen3-4B-Q4_K_M:8bit") == f"{file}:8bit"
    assert canonical_model("someone/Qwen3-9B") == "someone/Qwen3-9B"  # it may be on the hub
    check_model("ollama/llama3.2:1b")
    with pytest.raises(AppError, match="`stockpot models` lists all"):
        check_model("ollama/someone/llama3.2:9b")


def test_they_are_listed_with_the_reason_why_one_cannot_be_used(machine: Path) -> None:
    put(machine / ".lmstudio" / "models" / "someone" / "Broken" / "broken.gguf", "GGUF and nothing else")
    [found] = [each for each in local_models(machine / "home") if each.place == "LM Studio"]
    assert found.name == "broken"
    assert "broken.gguf" in found.reason
    assert not found.to_json()["usable"]


def test_a_short_name_means_a_model_here_before_a_recommended_one(machine: Path) -> None:
    home = machine / "home"
    assert canonical_model("qwen3.5-9b:nf4", home) == "unsloth/Qwen3.5-9B-GGUF:Q4_K_M:nf4"
    assert canonical_model("Granite-4.1-3B", home) == "ibm-granite/granite-4.1-3b-GGUF:Q4_K_M"
    assert canonical_model("SmolLM2", home) == "smollm2"
    (machine / "hub" / "models--someone--Tale-7B").mkdir(parents=True)
    assert canonical_model("tale-7b", home) == "someone/Tale-7B"
    found = put(machine / ".lmstudio" / "models" / "someone" / "GGUF" / "granite-4.1-3b-Q4_K_M.gguf")
    assert canonical_model("granite-4.1-3b", home) == str(found)
    config = put(home / "models" / "Granite-4.1-3B" / "config.json", "{}")
    assert canonical_model("granite-4.1-3b", home) == str(config.parent)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("qwen3.5", "'qwen3.5' fits several models: did you mean unsloth/Qwen3.5-2B-.* or unsloth/Qwen3.5-9B"),
        ("qwe", "'qwe'. Did you mean Qwen/Qwen2.5-.* or unsloth/Qwen3.*`stockpot models get NAME` fetches one"),
        ("qwn3.5-9b-gguf", "No model is called 'qwn3.5-9b-gguf'. Did you mean unsloth/Qwen3.5-9B-GGUF:Q4_K_M?"),
        ("smolm2", "Did you mean smollm2?"),
        ("granite-4.1-3", "Did you mean ibm-granite/granite-4.1-3b-GGUF:Q4_K_M?"),
        ("zzz", "Give a path, or a hub id such as Qwen/Qwen3-0.6B. `stockpot models` lists"),
    ],
)
def test_a_short_name_of_no_model_or_of_several_is_refused(machine: Path, name: str, sentence: str) -> None:
    with pytest.raises(AppError, match=sentence):
        check_model(name, machine)
