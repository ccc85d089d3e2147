"""Linked folders: folders of this computer whose files are kept in step, and the last sight of each file."""

import time
from typing import Any

from sessions.database import Database
from sessions.rows import LinkedFolderRow, make_row, to_json


class LinkedFolders:
    """The table of linked folders. Backups leave it out, as its paths are those of one computer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, folder: str, at_once: int, files: dict[str, Any]) -> LinkedFolderRow:
        """Link a folder, or link it anew, and return its row. For the arguments see `LinkedFolderRow`."""
        with self._database.transaction() as db:
            db.execute(
                "INSERT INTO linked_folders (folder, at_once, files, linked_at) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (folder) DO UPDATE SET at_once = excluded.at_once, files = excluded.files, "
                "linked_at = excluded.linked_at, revision = revision + 1",
                [folder, at_once, to_json(files), time.time()],
            )
        (row,) = (each for each in self.all() if each.folder == folder)
        return row

    def all(self) -> list[LinkedFolderRow]:
        """Return all linked folders, in order of their paths."""
        rows = self._database.rows("SELECT * FROM linked_folders ORDER BY folder")
        return [make_row(LinkedFolderRow, row) for row in rows]

    def linked_at(self) -> dict[str, float]:
        """Return the time of linking of each folder, by its path."""
        rows = self._database.rows("SELECT folder, linked_at FROM linked_folders ORDER BY folder")
        return {row["folder"]: row["linked_at"] for row in rows}

    def save(self, row: LinkedFolderRow) -> bool:
        """Store the sight of a folder; return False if it was unlinked, linked anew or saved since the row was read."""
        seen = (to_json(row.files), to_json(row.left_out), row.problem)
        with self._database.transaction() as db:
            changed = db.execute(
                "UPDATE linked_folders SET files = ?, left_out = ?, problem = ?, revision = revision + 1 "
                "WHERE folder = ? AND revision = ?",
                [*seen, row.folder, row.revision],
            )
        return bool(changed.rowcount)

    def remove(self, folder: str) -> bool:
        """Unlink a folder, and return whether it was linked. All documents stay."""
        with self._database.transaction() as db:
            return bool(db.execute("DELETE FROM linked_folders WHERE folder = ?", [folder]).rowcount)
