"""An atomic folder of tensors: safetensors files, and a manifest that lists the valid ones.

A save writes new files beside the old ones, replaces `manifest.json` in one rename, and removes unlisted files. A crash
at any moment leaves the old state or the new one. Pickle is never used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from sessions import manifest
from sessions.errors import (
    DiskFull,
    FingerprintMismatch,
    NotFound,
    StoreCorrupt,
    StoreError,
    StoreFailing,
    is_disk_full,
    reason_of,
)
from sessions.files import crc32_of, disk_free, flush_directory, link_or_copy, write_whole
from sessions.ids import ID, kind_of
from sessions.locking import only_saver
from sessions.parts import Part, header_crc32, summary, write_part
from sessions.rows import to_json

if TYPE_CHECKING:
    import torch

_MANIFEST = "manifest.json"
_SPARE_BYTES = 1 << 20  # for headers and the manifest
log = logging.getLogger(__name__)


class TensorFolder:
    """The saved state of a context, or of a session's own turns.

    Args:
        path: the folder; created by the first save.
        guard: called before a save becomes valid; raises if no state may be saved here any more.
    """

    def __init__(self, path: Path, guard: Callable[[], object] = lambda: None) -> None:
        self.path = path
        self._guard = guard

    def begin_like(self, other: TensorFolder, meta: dict[str, Any] | None = None) -> None:
        """Start with the state of another folder, to be continued by `save` with `beside`.

        Files are hard-linked, as they never change; they are copied where links are not supported. All parts become
        sealed: a part later saved under the same name is identical or has another shape.

        Args:
            other: the folder to start with.
            meta: replaces the other folder's meta; None to keep it.

        Raises:
            DiskFull: no room for copies.
            NotFound, StoreCorrupt: the other folder has no valid state.
        """
        state = other._manifest()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            for entry in state["parts"].values():
                link_or_copy(other._check(entry), self.path / entry["file"])
            flush_directory(self.path)
            parts = {name: {**entry, "sealed": True} for name, entry in state["parts"].items()}
            self._guard()
            self._write_manifest({**state, "parts": parts, **({} if meta is None else {"meta": meta})})
        except OSError as error:
            if is_disk_full(error):
                needed = sum(entry["bytes"] for entry in state["parts"].values())
                raise DiskFull(self.path, needed, disk_free(self.path)) from error
            raise StoreFailing(
                f"Cannot save in {self.path}: {reason_of(error)}. What was saved before is intact."
            ) from error

    def save(self, parts: Mapping[str, Part], meta: dict[str, Any], fingerprint: str, beside: bool = False) -> None:
        """Replace the state by these parts.

        A sealed part that is already saved under this fingerprint, with tensors of the same names, dtypes and shapes,
        is not written again: its contents are taken to be the same.

        Args:
            parts: tensors by name of their file.
            meta: comes back as JSON gives it (tuples as lists).
            fingerprint: identifies the model, tokenizer, method and settings of the tensors.
            beside: keep the other saved parts, whatever their fingerprint.

        Raises:
            DiskFull: no room; the old state is intact.
            ValueError: a part's name is not made of a-z, 0-9, dot, dash and underscore.
        """
        for name in parts:
            if not manifest.PART.fullmatch(name):
                raise ValueError(f"{name!r} cannot name a part: use a-z, 0-9, '_', '-' and '.' (not first).")
        self._guard()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with only_saver(self.path):
            old = self._old_manifest(fingerprint)
            listed: dict[str, Any] = {}
            if beside:
                listed = {name: entry for name, entry in self._manifest()["parts"].items() if name not in parts}
            to_write: dict[str, Part] = {}
            for name, part in parts.items():
                entry = old["parts"].get(name)
                if part.sealed and entry and self._still_there(entry, part):
                    listed[name] = entry
                else:
                    to_write[name] = part
            generation = 1 + max([old["generation"], *(_generation(file) for file in self.path.iterdir())])
            needed = _SPARE_BYTES + sum(t.nbytes for part in to_write.values() for t in part.tensors.values())
            if needed > (free := disk_free(self.path)):
                raise DiskFull(self.path, needed, free)
            new_files = {name: self.path / f"{name}.{generation:06d}.safetensors" for name in to_write}
            try:
                for name, part in to_write.items():
                    listed[name] = write_part(new_files[name], part)
                flush_directory(self.path)
                self._guard()
                body = {
                    "version": manifest.LAYOUT,
                    "generation": generation,
                    "fingerprint": fingerprint,
                    "meta": meta,
                    "parts": {name: listed[name] for name in dict.fromkeys([*parts, *listed])},
                }
                self._write_manifest(body)
            except (OSError, SafetensorError, StoreError) as error:
                self._take_back()
                if is_disk_full(error):
                    raise DiskFull(self.path, needed, disk_free(self.path)) from error
                self._guard()  # deleted meanwhile: a clearer error than a missing folder
                if isinstance(error, StoreError):
                    raise
                raise StoreFailing(
                    f"Cannot save in {self.path}: {reason_of(error)}. What was saved before is intact."
                ) from error
            self._remove_unlisted({entry["file"] for entry in listed.values()})

    def _write_manifest(self, body: dict[str, Any]) -> None:
        text = to_json(body)
        whole = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "state": text}
        write_whole(self.path / _MANIFEST, json.dumps(whole).encode())

    def load(
        self,
        fingerprint: str | None = None,
        contents: bool = True,
        only: Collection[str] | None = None,
        without: str | None = None,
    ) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
        """Return the saved parts (memory-mapped, private to this process) and meta.

        Args:
            fingerprint: expected fingerprint; None for any.
            contents: read every file and compare its CRC-32. False checks only sizes and headers, for a state just
                written.
            only: names of the parts to load; None for all.
            without: beginning of the names of parts to leave out.

        Raises:
            NotFound: nothing is saved here.
            FingerprintMismatch: it was saved with another fingerprint.
            StoreCorrupt: a file is missing, truncated or altered.
        """
        while True:
            state = self._manifest()
            if fingerprint is not None and state["fingerprint"] != fingerprint:
                raise FingerprintMismatch(self.path, state["fingerprint"], fingerprint)
            wanted = {name: entry for name, entry in state["parts"].items() if only is None or name in only}
            if without is not None:
                wanted = {name: entry for name, entry in wanted.items() if not name.startswith(without)}
            try:
                return {name: self._load_part(entry, contents) for name, entry in wanted.items()}, state["meta"]
            except (StoreCorrupt, FileNotFoundError):
                # Another save may have removed these files during the read.
                if self._manifest()["generation"] == state["generation"]:
                    raise

    def discard(self) -> None:
        """Remove the saved state; the next save reuses nothing of it."""
        with only_saver(self.path):
            (self.path / _MANIFEST).unlink(missing_ok=True)
            flush_directory(self.path)
            self._remove_unlisted(set())

    def sweep(self) -> None:
        """Remove temporary files of a killed save; does nothing while another save is running."""
        if not any(file.name.startswith(".tmp") or file.suffix == ".tmp" for file in self.path.iterdir()):
            return
        with suppress(BlockingIOError, StoreError), only_saver(self.path, wait=False):
            self._remove_unlisted({entry["file"] for entry in self._manifest()["parts"].values()})

    def stamps(self) -> dict[str, tuple[int, int, int]]:
        """Return inode, size and modification time of every file here, to detect later changes."""
        try:
            found = [(entry.name, entry.stat()) for entry in os.scandir(self.path)]
        except FileNotFoundError:  # deleted meanwhile
            return {}
        return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found}

    def fingerprint(self) -> str:
        """Return the saved fingerprint.

        Raises:
            NotFound, StoreCorrupt: as `load`.
        """
        return str(self._manifest()["fingerprint"])

    def exists(self) -> bool:
        """Return whether a state is saved here."""
        return (self.path / _MANIFEST).exists()

    def _manifest(self) -> dict[str, Any]:
        try:
            state = manifest.parsed((self.path / _MANIFEST).read_bytes())
        except FileNotFoundError:
            raise NotFound(
                f"No state is saved in {self.path}: read the documents, or ask in the session, first."
            ) from None
        except (OSError, ValueError) as error:
            raise StoreCorrupt(f"{self.path / _MANIFEST} is damaged ({reason_of(error)}): {self._again()}") from error
        if (version := state["version"]) != manifest.LAYOUT:
            raise StoreError(
                f"{self.path} has layout {version}, this version reads {manifest.LAYOUT}: update, or {self._again()}"
            )
        return state

    def _old_manifest(self, fingerprint: str) -> dict[str, Any]:
        """Return the manifest to reuse sealed parts from; without parts if it is damaged or has another fingerprint."""
        try:
            state = self._manifest()
        except StoreError:
            return {"generation": 0, "parts": {}}
        return state if state["fingerprint"] == fingerprint else {**state, "parts": {}}

    def _still_there(self, entry: dict[str, Any], part: Part) -> bool:
        file = self.path / entry["file"]
        same = bool(entry["sealed"]) and entry["tensors"] == summary(part)
        return same and file.exists() and file.stat().st_size == entry["bytes"]

    def _load_part(self, entry: dict[str, Any], contents: bool) -> dict[str, torch.Tensor]:
        from safetensors.torch import load_file

        file = self._check(entry)
        if contents and crc32_of(file) != entry["crc32"]:
            raise StoreCorrupt(f"The contents of {file} are not what was written: {self._again()}")
        try:
            tensors: dict[str, torch.Tensor] = load_file(file)
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise StoreCorrupt(f"{file} is damaged ({error}): {self._again()}") from error
        if summary(Part(tensors)) != entry["tensors"]:
            raise StoreCorrupt(f"The tensors in {file} are not those of its manifest: {self._again()}")
        return tensors

    def _check(self, entry: dict[str, Any]) -> Path:
        """Return the file of a part, after a check of its size and header."""
        file: Path = self.path / entry["file"]
        if not file.exists():
            raise StoreCorrupt(f"{file} is missing: {self._again()}")
        if (size := file.stat().st_size) != entry["bytes"]:
            raise StoreCorrupt(f"{file} has {size:,} bytes, {entry['bytes']:,} were written: {self._again()}")
        if not file.is_file() or header_crc32(file) != entry["header_crc32"]:
            raise StoreCorrupt(f"The header of {file} is not what was written: {self._again()}")
        return file

    def _again(self) -> str:
        name = self.path.name
        if ID.fullmatch(name) and kind_of(name) == "session":
            return f"branch {name} and go on in the branch, which reads the turns that it keeps from their text."
        return f"delete {name}, then read its documents again (they are kept)."

    def _take_back(self) -> None:
        """Remove the files of a failed save, unless its manifest is already valid."""
        try:
            listed = {entry["file"] for entry in self._manifest()["parts"].values()}
        except NotFound:
            listed = set()
        except StoreError:
            return
        if self.path.exists():
            self._remove_unlisted(listed)

    def _remove_unlisted(self, listed: set[str]) -> None:
        for file in self.path.iterdir():
            # safetensors writes to `.tmpAbCdEf` and renames it.
            ours = file.suffix in (".safetensors", ".tmp") or file.name.startswith(".tmp")
            if ours and file.name not in listed:
                try:
                    file.unlink()
                except OSError as error:  # still mapped by a process on Windows; the next save tries again
                    log.info("cannot remove %s yet: %s", file, error)


def _generation(file: Path) -> int:
    found = re.fullmatch(r".+\.(\d{6,})\.safetensors", file.name)
    return int(found[1]) if found else 0
