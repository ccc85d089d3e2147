"""Names of GGUF files on the hub: "owner/name:Q4_K_M", as llama.cpp and Ollama write them."""

import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from app.errors import AppError

TAGGED = re.compile(r"([\w.-]+/[\w.-]+):([\w.-]+)")
PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
NOT_MODELS = re.compile(r"(^|[/._-])(mmproj|projector|imatrix)|(^|/)(mtp|eagle3|dflash|dspark)-", re.IGNORECASE)
"""Files beside models: eyes, measurements for quantising, and drafts for another model."""
USUAL = ("Q4_K_M", "Q8_0")
"""Tags to try if none is given, as llama.cpp does."""
KNOWN_TAG = re.compile(r"(?<![A-Za-z0-9])(UD-)?(I?Q\d\w*|TQ\d_0|MXFP4\w*|NVFP4|BF16|F16|F32)(?=[./-])", re.IGNORECASE)


def split_tag(name: str) -> tuple[str, str]:
    """Split the name of a hub's GGUF file from its tag: "a/b:Q4_K_M" is ("a/b", "Q4_K_M"), "a/b" is ("a/b", "")."""
    tagged = TAGGED.fullmatch(name)
    return (tagged[1], tagged[2]) if tagged else (name, "")


def is_model_file(name: str) -> bool:
    """Return whether a file is a GGUF model, or the first part of one, by its name alone."""
    part = PART.search(name)
    return name.lower().endswith(".gguf") and not NOT_MODELS.search(name) and (part is None or int(part[1]) == 1)


def choose_file(names: Collection[str], tag: str, where: str) -> list[str]:
    """Return the file with a tag, or all its parts in order.

    Args:
        names: all files of a repository.
        tag: the tag, in any case; "" for a usual one, or else the first model.
        where: name of the repository.

    Raises:
        AppError: there is no such file, or parts are missing; the sentence names the tags that there are.
    """
    models = sorted((each for each in names if is_model_file(each)), key=lambda each: (len(each), each))
    tried = [[each for each in models if _has(each, wanted)] for wanted in ([tag] if tag else USUAL)]
    found = next(filter(None, tried), [] if tag else models)
    if not found:
        tags = sorted({each[0].upper() for name in models for each in KNOWN_TAG.finditer(PurePosixPath(name).name)})
        raise AppError(
            f"{where} has no GGUF file {tag}: choose one of {', '.join(tags)}."
            if tags
            else f"{where} has no GGUF file: choose another model."
        )
    first = found[0]
    part = PART.search(first)
    if part is None:
        return [first]
    parts = [PART.sub(f"-{number:05}-of-{part[2]}", first) for number in range(1, int(part[2]) + 1)]
    if missing := [each for each in parts if each not in names]:
        raise AppError(f"{where} lacks {missing[0]}, a part of {first}: choose another file or model.")
    return parts


def file_in_cache(name: str) -> Path | None:
    """Return the (first) file of "owner/name:TAG" in the hub's cache; None if it is not whole there."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    repository, tag = split_tag(name)
    kept = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model")
    try:
        folder = kept / "snapshots" / (kept / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    names = [str(each.relative_to(folder).as_posix()) for each in folder.rglob("*") if each.is_file()]
    try:
        return folder / choose_file(names, tag, repository)[0]
    except AppError:
        return None


def _has(name: str, tag: str) -> bool:
    return bool(re.search(rf"(?<![A-Za-z0-9]){re.escape(tag)}(?=[./-])", name, re.IGNORECASE))
