"""Download models into the hub's cache, where `--model HUB_ID` finds them.

huggingface_hub 2 restarts an interrupted file from its first byte. So files are downloaded here, to their place among
the cache's blobs, and huggingface_hub only links them.
"""

import hashlib
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

from app.errors import AppError
from app.formatting import byte_size
from app.machine.fetched import Fetched, Pace, Show
from app.machine.gguf_names import choose_file, split_tag
from app.machine.hub import explain_hub_errors
from app.machine.model_names import GGUF
from sessions import disk_free

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
BESIDE_WEIGHTS = (
    CONFIG, "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json",
    "merges.txt", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json", INDEX,
)  # fmt: skip
"""Files to download besides weights. None of them is code."""
SHARD = re.compile(r"[\w-][\w.-]*\.safetensors")
DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
TRIES = 5
PAUSE_SEC = 1.0
ANSWER_SEC = 10.0
BUSY = (429, 500, 502, 503, 504)
"""Statuses of a hub that may answer a little later."""


@dataclass(frozen=True)
class HubFile:
    """A file of a model. digest: SHA-256 of a large file, git's SHA-1 of any other."""

    name: str
    size: int
    digest: str

    def is_whole(self, path: Path) -> bool:
        """Return whether a local file has the same content."""
        if path.stat().st_size != self.size:
            return False
        hashed = hashlib.sha256() if len(self.digest) == 64 else hashlib.sha1(b"blob %d\0" % self.size)
        with path.open("rb") as opened:
            while block := opened.read(1 << 20):
                hashed.update(block)
        return hashed.hexdigest() == self.digest


def fetch_model(name: str, show: Show) -> Fetched:
    """Download the missing files of a model, and check all of its files.

    A model in safetensors comes whole, its configuration before the weights. Of GGUF files the one that is named comes.

    Args:
        name: hub id; with ":Q4_K_M" and the like for the GGUF file with this tag.
        show: told about progress.

    Raises:
        AppError: it cannot be downloaded; finished parts stay for the next attempt.
        engine.EngineError: the model cannot be used.
    """
    import engine

    repository, tag = split_tag(name)
    with explain_hub_errors(repository):
        fetch = _Fetch(repository, show)
        if tag or not fetch.is_safetensors:
            fetch.check_architecture()
            names = choose_file(fetch.files, tag, repository)
            path = fetch.get(names)
            fetch.remember(names)
        else:
            path = fetch.get([each for each in BESIDE_WEIGHTS if each in fetch.files]).parent
            engine.load_chat(path, engine.read_config(path))
            fetch.get(fetch.weights(path))
            fetch.remember([CONFIG])
    config = engine.read_config(path)
    engine.check_files(path, config)
    return Fetched(name, str(path), fetch.done, fetch.came)


class _Fetch:
    """The download of one model.

    done: bytes of files that are complete.
    """

    def __init__(self, name: str, show: Show) -> None:
        """Ask the hub for the list of the model's files.

        Raises:
            AppError: there are no files that can be used here.
        """
        from huggingface_hub import HfApi, constants
        from huggingface_hub.file_download import repo_folder_name

        show(f"Asking the hub for {name}")
        info = HfApi().model_info(name, files_metadata=True, timeout=ANSWER_SEC)
        self.name, self.revision, self._show = name, str(info.sha), show
        self.files: dict[str, HubFile] = {}
        for each in info.siblings or ():
            digest = str(each.lfs.sha256 if each.lfs else each.blob_id)
            if each.size is not None and DIGEST.fullmatch(digest):
                self.files[each.rfilename] = HubFile(each.rfilename, each.size, digest)
        if not self.is_safetensors and not any(each.lower().endswith(GGUF) for each in self.files):
            raise AppError(
                f"{name} has no {CONFIG if CONFIG not in self.files else 'weights in safetensors'} on the hub, and no "
                "GGUF file: choose a model that is published with config.json and safetensors, or as GGUF."
            )
        self._architecture = str((getattr(info, "gguf", None) or {}).get("architecture") or "")
        self._cache = Path(constants.HF_HUB_CACHE)
        self._kept = repo_folder_name(repo_id=name, repo_type="model")
        self._total = self.done = 0
        self._pace = Pace()

    @property
    def came(self) -> int:
        """Bytes downloaded just now."""
        return self._pace.came

    @property
    def is_safetensors(self) -> bool:
        """True if the model is published with a configuration and safetensors."""
        return CONFIG in self.files and bool({SINGLE, INDEX} & set(self.files))

    def check_architecture(self) -> None:
        """Refuse a GGUF file whose architecture cannot be used, before it comes, if the hub knows it.

        Raises:
            AppError: it cannot be used here.
        """
        from engine.models.architectures import ARCHITECTURES

        known = {row.gguf.name for row in ARCHITECTURES.values() if row.gguf}
        if self._architecture and self._architecture not in known:
            raise AppError(
                f"The architecture '{self._architecture}' of {self.name} is not read from GGUF files: choose one that "
                "docs/models.md lists, or a hub id with safetensors."
            )

    def weights(self, folder: Path) -> list[str]:
        """Return the names of the files with weights; an index in the folder lists them if there are several.

        Raises:
            AppError: the index is damaged, or names a file that the hub does not have.
        """
        if SINGLE in self.files:
            return [SINGLE]
        try:
            named = set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AppError(f"{INDEX} of {self.name} is damaged on the hub: choose another model.") from None
        lacking = sorted(str(each) for each in named if each not in self.files or not SHARD.fullmatch(each))
        if lacking:
            raise AppError(f"The hub has no {lacking[0]!r} of {self.name}, which {INDEX} names: choose another model.")
        return sorted(named)

    def get(self, names: list[str]) -> Path:
        """Download the files that are missing, and return the path of the first.

        Raises:
            AppError: the disk has no room, or a file differs from the hub's listing.
        """
        files = [self.files[name] for name in names]
        missing = sum(each.size - _size(self._part(each)) for each in files if self._here(each) is None)
        free = disk_free(self._cache)
        if missing > free:
            raise AppError(
                f"{self.name} needs {byte_size(missing)} more on the disk, and {byte_size(free)} are free for "
                f"{self._cache}: free some space, or name a folder on another disk in the variable HF_HOME."
            )
        self._total += sum(each.size for each in files)
        paths = [self._get(each) for each in files]
        return paths[0]

    def remember(self, names: list[str]) -> None:
        """Mark this version as the newest one in the cache. names: files that it must have."""
        for name in names:
            self._linked(name, None)

    def _get(self, file: HubFile) -> Path:
        """Download one file if it is missing, compare its checksum, and return its path in the snapshot."""
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # looked up when asked for

        blob, part = self._blob(file), self._part(file)
        lock = self._cache / ".locks" / self._kept / f"{file.digest}.lock"
        for folder in (blob.parent, lock.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            path = self._here(file)
            if path is None:
                self._fetch(file, part)
            self._show(f"Checking {file.name} of {self.name}", self.done + file.size, self._total)
            if not file.is_whole(path or part):
                (path or part).resolve().unlink()
                raise AppError(
                    f"{file.name} of {self.name} was not what the hub says that it is (its checksum differs), and is "
                    "deleted: try again to fetch it anew."
                )
            if path is None:
                part.replace(blob)
        self.done += file.size
        return self._linked(file.name, self.revision)

    def _fetch(self, file: HubFile, part: Path) -> None:
        """Download the rest of a file; reconnect and continue if the connection breaks."""
        from huggingface_hub.errors import HfHubHTTPError, HTTPError  # type: ignore[attr-defined]  # whoever's it is

        part.touch()
        tries = 0
        while (had := _size(part)) < file.size:
            try:
                self._stream(file, part, had)
            except HfHubHTTPError as error:
                if tries == TRIES or error.response.status_code not in BUSY:
                    raise
            except HTTPError:
                if tries == TRIES:
                    raise
            tries = 0 if _size(part) > had else tries + 1
            if tries > TRIES:
                raise AppError(f"The hub sends less of {file.name} than it has: try again later.")
            if tries:
                time.sleep(PAUSE_SEC)

    def _stream(self, file: HubFile, part: Path, had: int) -> None:
        """Write the rest of a file, or all of it if the hub sends it from the first byte."""
        from huggingface_hub import constants, get_session, hf_hub_url
        from huggingface_hub.utils import (  # type: ignore[attr-defined]  # looked up when asked for
            build_hf_headers,
            hf_raise_for_status,
        )

        url = hf_hub_url(self.name, file.name, revision=self.revision)
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        if had:
            headers["Range"] = f"bytes={had}-"
        waiting = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with get_session().stream("GET", url, headers=headers, timeout=waiting) as response, part.open("ab") as opened:
            hf_raise_for_status(response)
            if response.status_code != 206:
                had = opened.truncate(0)
            for block in response.iter_bytes():
                opened.write(block)
                had += len(block)
                self._pace.came += len(block)
                self._show(self._pace.line(self.name, self.done + had, self._total), self.done + had, self._total)
                if had > file.size:  # longer than the file that was listed; the checksum will differ
                    return

    def _here(self, file: HubFile) -> Path | None:
        """Return the path of a file in the cache, as a blob or in the snapshot; None if it is missing."""
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self.name, file.name, cache_dir=self._cache, revision=self.revision)
        blob = self._blob(file)
        return Path(found) if isinstance(found, str) else blob if blob.exists() else None

    def _blob(self, file: HubFile) -> Path:
        return self._cache / self._kept / "blobs" / file.digest

    def _part(self, file: HubFile) -> Path:
        return self._blob(file).with_name(f"{file.digest}.incomplete")

    def _linked(self, name: str, revision: str | None) -> Path:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(self.name, name, revision=revision, cache_dir=self._cache))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
