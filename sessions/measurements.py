"""Measurements for the live panel: values with a time, a kind and a subject."""

import time
from typing import Any

from sessions.database import Database
from sessions.rows import MeasurementRow, make_row, to_json


class Measurements:
    """The table of measurements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, kind: str, subject_id: str, values: dict[str, Any]) -> MeasurementRow:
        """Store one record and return it. Deleting its context, session, turn or job deletes it."""
        row = {"at": time.time(), "kind": kind, "subject_id": subject_id, "values": to_json(values)}
        with self._database.transaction(passing=True) as db:
            db.table("measurements").insert(row)
        return make_row(MeasurementRow, row)

    def newest(self, kind: str, subject_id: str, limit: int = 1000) -> list[MeasurementRow]:
        """Return the newest `limit` records of a kind and subject, oldest first."""
        rows = self._database.rows(
            "SELECT * FROM measurements WHERE kind = ? AND subject_id = ? ORDER BY key DESC LIMIT ?",
            [kind, subject_id, limit],
        )
        return [make_row(MeasurementRow, row) for row in reversed(rows)]

    def thin(self, kind: str, subject_id: str, most: int) -> None:
        """Keep at most `most` records of a kind and subject, evenly spaced, including the first and the last."""
        with self._database.transaction() as db:
            wanted = "kind = ? AND subject_id = ?"
            rows = self._database.rows(f"SELECT key FROM measurements WHERE {wanted} ORDER BY key", [kind, subject_id])
            last = len(rows) - 1
            kept = {round(last * step / (most - 1)) for step in range(most)}
            if last >= most:
                for number in set(range(len(rows))) - kept:
                    db.execute("DELETE FROM measurements WHERE key = ?", [rows[number]["key"]])
