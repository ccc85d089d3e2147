"""The SQL functions that triggers and search indexes call. Every connection that writes rows needs them."""

import sqlite3

from sessions.checksums import know_checksums
from sessions.search_words import know_spacing


def know_functions(connection: sqlite3.Connection) -> None:
    """Register the functions on a connection."""
    know_checksums(connection)
    know_spacing(connection)
