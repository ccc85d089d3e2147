"""The models on this machine and their needs: those that ship, those in the home, those of other programs."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from app.errors import phrase
from app.home import ASSETS, MODELS
from app.machine.found_models import found_models
from app.machine.gguf_names import file_in_cache, is_model_file
from app.machine.model_names import GGUF, POCKET, SMOLLM2, is_tagged, model_source, smollm2_file, split_model


@dataclass(frozen=True)
class LocalModel:
    """A model on this machine.

    name: name that `--model` takes.
    place: "shipped", "home", "cache", "named", or the name of the program that keeps it.
    path: its folder or GGUF file.
    reason: why it cannot be used; empty if it can.
    weight_bytes: bytes by quantisation; "none" is bfloat16, or as published. "blocks" is for GGUF files.
    entry_bytes: bytes of one token's keys and values in the layers that look at the whole text, in bfloat16.
    """

    name: str
    place: str
    path: str = ""
    architecture: str = ""
    reason: str = ""
    parameters: int = 0
    window: int = 0
    weight_bytes: dict[str, int] = field(default_factory=dict)
    entry_bytes: int = 0

    def bytes_in(self, form: str) -> int:
        """Return the bytes of the weights in memory if no quantisation is asked for.

        form: of a GGUF file on this machine, see `recommended.form_in`. With "blocks" other models are in float32.
        """
        if form != "blocks":
            return self.weight_bytes["none"]
        return self.weight_bytes.get(form, 2 * self.weight_bytes["none"])

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "usable": not self.reason}


def local_models(home: Path, named: str = "") -> list[LocalModel]:
    """Return every model found on this machine, and the named one, wherever it lies. Weights are not read."""
    found = list(_find(home))
    folder = local_folder(named) if named else None
    if folder is not None and folder.resolve() not in [each.resolve() for *_, each in found]:
        found.append((named, "named", folder))
    return [_examine(*each) for each in found]


def local_folder(name: str) -> Path | None:
    """Return the folder or GGUF file of a model on this machine; None if it is missing or would have to be
    downloaded.
    """
    if is_tagged(name):
        return file_in_cache(split_model(name)[0])
    source = model_source(name)
    if Path(source).exists():
        return Path(source)
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(source, "config.json", cache_dir=constants.HF_HUB_CACHE)
    except HFValidationError:  # a path without a file
        return None
    return Path(config).parent if isinstance(config, str) else None


def _find(home: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield name, place and path of each model."""
    file = smollm2_file()
    if file is not None:
        yield SMOLLM2, "shipped", file
    if (ASSETS / POCKET / "config.json").exists():
        yield POCKET, "shipped", ASSETS / POCKET
    for path in sorted((home / MODELS).glob("*/config.json")):
        yield str(path.parent), "home", path.parent
    for path in sorted((home / MODELS).glob(f"*{GGUF}")):
        if is_model_file(path.name):
            yield str(path), "home", path
    for model in found_models():
        yield model.name, model.place, model.path
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except (CacheNotFound, ValueError):
        return
    for repository in sorted(repositories, key=lambda each: each.repo_id):
        newest = max(repository.revisions, key=lambda each: each.last_modified, default=None)
        if repository.repo_type == "model" and newest and (newest.snapshot_path / "config.json").exists():
            yield repository.repo_id, "cache", newest.snapshot_path


def _examine(name: str, place: str, folder: Path) -> LocalModel:
    import engine

    try:
        return _examined(name, place, folder, engine.model_stamp(folder))
    except Exception as error:  # a broken model must not hide the others
        return LocalModel(name, place, str(folder), reason=phrase(error))


@lru_cache(maxsize=256)
def _examined(name: str, place: str, folder: Path, stamp: str) -> LocalModel:
    """Return a model with its needs, which takes up to a second. stamp: of its files; it is looked at once for each.

    Raises:
        Exception: it cannot be used.
    """
    import torch

    import engine
    from engine.models.sizes import QUANTIZATIONS

    config = engine.read_config(folder)
    engine.check_files(folder, config)
    engine.load_chat(folder, config)
    sizes = engine.model_sizes(config, torch.bfloat16)
    if sizes.published is not None:
        sizes.published.require_packages()
    possible = () if sizes.published is not None else QUANTIZATIONS
    return LocalModel(
        name,
        place,
        str(folder),
        architecture=str(config.model_type),
        parameters=sizes.parameters,
        window=sizes.spec.window,
        weight_bytes={each: sizes.weight_bytes(each) for each in dict.fromkeys((*sizes.quantizations, *possible))},
        entry_bytes=sizes.spec.looking_far.entry_bytes,
    )
