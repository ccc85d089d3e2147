"""Add contexts to the database again that it lacks, for example after an older one was restored."""

from pathlib import Path

from app.errors import phrase
from sessions import Store, StoreError, TensorFolder


def take_back(store: Store, folder: Path) -> str:
    """Add the context of a folder to the database, if its files are complete. Its conversations are lost.

    Returns:
        A sentence that says why it was not added; empty if it was.
    """
    if folder.parent.name != "contexts":
        return f"{folder} stays as it is: only readings say of themselves what they are."
    state = TensorFolder(folder)
    try:
        _, meta = state.load()
        row, ready = meta.get("row"), meta["context"] is not None
        if row is None:
            return f"{folder} stays as it is: an earlier version saved it, which did not note there what it is."
        read = row["tokens"] if ready else int((meta["reader"] or {}).get("reader", {}).get("done", 0))
        store.contexts.restore(
            folder.name,
            list(dict.fromkeys(each["document_id"] for each in meta["stretches"])),
            fingerprint=state.fingerprint(),
            status="ready" if ready else "paused",
            tokens_read=min(read, row["tokens"]),
            **{name: row[name] for name in ("model", "method", "settings", "budget", "tokens", "created_at")},
        )
    except (StoreError, KeyError, TypeError, ValueError) as error:
        return f"{folder} stays as it is: {phrase(error)}"
    return ""
