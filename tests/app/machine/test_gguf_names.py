"""Names of GGUF files on the hub: which file of a repository a tag means."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from app.errors import AppError
from app.machine.found_models import found_models
from app.machine.gguf_names import choose_file, file_in_cache, split_tag
from app.machine.local_models import local_folder
from app.machine.model_names import check_model, is_tagged, model_source

REPOSITORY = "somebody/Tale-4B-GGUF"
FILES = (
    "README.md",
    "Tale-4B-BF16.gguf",
    "Tale-4B-IQ4_NL.gguf",
    "Tale-4B-Q4_K_M.gguf",
    "Tale-4B-Q4_K_S.gguf",
    "Tale-4B-Q8_0.gguf",
    "Tale-4B-UD-Q4_K_M.gguf",
    "UD-Q4_K_XL/Tale-4B-UD-Q4_K_XL-00001-of-00002.gguf",
    "UD-Q4_K_XL/Tale-4B-UD-Q4_K_XL-00002-of-00002.gguf",
    "imatrix_unsloth.gguf",
    "mmproj-Q4_K_M.gguf",
    "mtp-Tale-4B-Q4_K_M.gguf",
)


@pytest.mark.parametrize(
    ("tag", "files"),
    [
        ("Q4_K_M", ["Tale-4B-Q4_K_M.gguf"]),
        ("q4_k_s", ["Tale-4B-Q4_K_S.gguf"]),
        ("UD-Q4_K_M", ["Tale-4B-UD-Q4_K_M.gguf"]),
        ("UD-Q4_K_XL", [f"UD-Q4_K_XL/Tale-4B-UD-Q4_K_XL-0000{n}-of-00002.gguf" for n in (1, 2)]),
        ("IQ4_NL", ["Tale-4B-IQ4_NL.gguf"]),
        ("", ["Tale-4B-Q4_K_M.gguf"]),
    ],
)
def test_a_tag_means_one_model(tag: str, files: list[str]) -> None:
    assert choose_file(FILES, tag, REPOSITORY) == files


def test_a_tag_may_stand_in_the_middle() -> None:
    assert choose_file(["tale_q4_0-it.gguf", "tale_q8_0-it.gguf"], "Q4_0", REPOSITORY) == ["tale_q4_0-it.gguf"]


@pytest.mark.parametrize("tag", ["Q4_K", "Q2_K", "4_K_M", ".*"])
def test_a_tag_without_a_file_is_answered_with_those_there_are(tag: str) -> None:
    with pytest.raises(AppError, match=r"has no GGUF file .*: choose one of BF16, IQ4_NL, Q4_K_M, .*UD-Q4_K_XL\."):
        choose_file(FILES, tag, REPOSITORY)


def test_without_a_tag_the_usual_files_come_first() -> None:
    assert choose_file(["a-Q2_K.gguf", "a-Q8_0.gguf"], "", REPOSITORY) == ["a-Q8_0.gguf"]
    assert choose_file(["a-Q2_K.gguf", "b-Q3_K_M.gguf"], "", REPOSITORY) == ["a-Q2_K.gguf"]
    with pytest.raises(AppError, match="has no GGUF file: choose another model"):
        choose_file(["model.safetensors", "mmproj-F16.gguf"], "", REPOSITORY)


def test_a_model_that_lacks_a_part_is_refused() -> None:
    with pytest.raises(AppError, match=r"lacks UD-Q4_K_XL/.*-00002-of-00002.gguf"):
        choose_file(FILES[:-4], "UD-Q4_K_XL", REPOSITORY)


def test_names_are_split() -> None:
    assert split_tag("a/b:Q4_K_M") == ("a/b", "Q4_K_M")
    assert split_tag("a/b") == ("a/b", "")
    assert is_tagged("a/b:Q4_K_M:int8")
    assert not any(map(is_tagged, ("a/b:nf4", "ollama/llama3.2:1b", "smollm2", "/models/a.gguf", "a/b")))


def test_the_cache_holds_only_whole_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "nobody")
    name, kept = f"{REPOSITORY}:UD-Q4_K_XL", tmp_path / "models--somebody--Tale-4B-GGUF"
    assert file_in_cache(name) is None
    with pytest.raises(AppError, match=f"`stockpot models get {name}` fetches it"):
        check_model(f"{name}:int8")
    snapshot = kept / "snapshots" / "abc" / "UD-Q4_K_XL"
    snapshot.mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("abc")
    first, second = (snapshot / Path(each).name for each in FILES[7:9])
    first.write_bytes(b"GGUF")
    assert local_folder(name) is None
    second.write_bytes(b"GGUF")
    (snapshot / "mtp-Tale.gguf").write_bytes(b"GGUF")
    assert model_source(f"{name}:int8") == str(local_folder(name)) == str(first)
    assert [each.name for each in found_models()] == ["Tale-4B-UD-Q4_K_XL"], "a draft is no model"
