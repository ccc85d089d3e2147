"""The schema, step by step. Never edit a step that has shipped: add one below.

All pending steps run in one transaction that takes the write lock first. So two processes that open a new home at once
do not both create it, and a failed step leaves the database unchanged. Write-ahead logging cannot be switched inside a
transaction; `database.py` does that before.
"""

import json

from sqlite_utils import Database, Migrations

from sessions.checksums import keep_checksums, widen_checksums
from sessions.errors import StoreError
from sessions.search_words import index_words

migrations = Migrations("stockpot.sessions")


def m001_documents_and_contexts(db: Database) -> None:
    """Create the tables of documents and contexts."""
    db.execute("""
        CREATE TABLE documents (
            id TEXT PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, title TEXT NOT NULL, format TEXT NOT NULL,
            pages INTEGER NOT NULL, characters INTEGER NOT NULL, warnings TEXT NOT NULL,
            file_name TEXT, file_path TEXT, file_bytes INTEGER NOT NULL, content_sha256 TEXT NOT NULL,
            created_at REAL NOT NULL)""")
    db.execute("""
        CREATE TABLE contexts (
            id TEXT PRIMARY KEY, model TEXT NOT NULL, method TEXT NOT NULL, settings TEXT NOT NULL, budget INTEGER,
            fingerprint TEXT NOT NULL, tokens INTEGER NOT NULL,
            status TEXT NOT NULL CHECK (status IN ('reading', 'paused', 'ready', 'failed', 'cancelled')),
            tokens_read INTEGER NOT NULL, seconds REAL NOT NULL, usage TEXT NOT NULL, warnings TEXT NOT NULL,
            error TEXT, owner TEXT, created_at REAL NOT NULL, updated_at REAL NOT NULL)""")
    db.execute("""
        CREATE TABLE context_documents (
            context_id TEXT NOT NULL REFERENCES contexts(id) ON DELETE CASCADE,
            document_id TEXT NOT NULL REFERENCES documents(id),
            position INTEGER NOT NULL, PRIMARY KEY (context_id, position))""")
    db.execute("CREATE INDEX contexts_by_fingerprint ON contexts(fingerprint)")
    db.execute("CREATE INDEX context_documents_by_document ON context_documents(document_id)")


def m002_sessions_and_turns(db: Database) -> None:
    """Create sessions and turns. Streamed answers are in `drafts`, to spare rewriting the search index per token."""
    db.execute("""
        CREATE TABLE sessions (
            id TEXT PRIMARY KEY, context_id TEXT NOT NULL REFERENCES contexts(id) ON DELETE CASCADE,
            title TEXT NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL)""")
    db.execute("""
        CREATE TABLE turns (
            key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
            session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, position INTEGER NOT NULL,
            question TEXT NOT NULL, answer TEXT NOT NULL,
            status TEXT NOT NULL CHECK (status IN ('answering', 'done', 'cancelled', 'failed')),
            sources TEXT NOT NULL, measurements TEXT NOT NULL, error TEXT, owner TEXT,
            created_at REAL NOT NULL, finished_at REAL, UNIQUE (session_id, position))""")
    db.execute("""
        CREATE TABLE drafts (
            turn_key INTEGER PRIMARY KEY REFERENCES turns(key) ON DELETE CASCADE,
            text TEXT NOT NULL, updated_at REAL NOT NULL)""")
    db.execute("CREATE INDEX sessions_by_context ON sessions(context_id)")
    # `key` is the row id that the index refers to: VACUUM may change an implicit one.
    db.table("turns").enable_fts(["question", "answer"], create_triggers=True, tokenize="unicode61 remove_diacritics 2")


def m003_jobs_and_measurements(db: Database) -> None:
    """Create jobs, workers and measurements."""
    db.execute("""
        CREATE TABLE jobs (
            key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
            subject_id TEXT NOT NULL, payload TEXT NOT NULL,
            status TEXT NOT NULL CHECK (status IN ('queued', 'running', 'done', 'failed', 'cancelled')),
            stage TEXT NOT NULL, done INTEGER NOT NULL, total INTEGER NOT NULL, progress TEXT NOT NULL, error TEXT,
            cancel_requested INTEGER NOT NULL, worker TEXT, owner TEXT, attempts INTEGER NOT NULL,
            created_at REAL NOT NULL, updated_at REAL NOT NULL, started_at REAL, finished_at REAL)""")
    db.execute("CREATE INDEX jobs_by_status ON jobs(status, key)")
    db.execute("CREATE INDEX jobs_by_subject ON jobs(subject_id)")
    db.execute("CREATE TABLE workers (name TEXT PRIMARY KEY, owner TEXT NOT NULL, heartbeat_at REAL NOT NULL)")
    db.execute("""
        CREATE TABLE measurements (
            key INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL, subject_id TEXT NOT NULL,
            "values" TEXT NOT NULL)""")
    db.execute("CREATE INDEX measurements_by_subject ON measurements(kind, subject_id, at)")


def m004_reasoning(db: Database) -> None:
    """Add the reasoning before an answer; it is not searched."""
    for table in ("turns", "drafts"):
        db.execute(f"ALTER TABLE {table} ADD COLUMN reasoning TEXT NOT NULL DEFAULT ''")


def m005_leftovers(db: Database) -> None:
    """Create the table of folders to sweep up: of items being made, and of deleted items until their folder is gone."""
    db.execute("CREATE TABLE leftovers (id TEXT PRIMARY KEY, noted_at REAL NOT NULL)")


def m006_measurements_of_subjects(db: Database) -> None:
    """Index measurements by subject, as a deletion knows the id but not the kinds."""
    db.execute("CREATE INDEX measurements_of_subject ON measurements(subject_id)")


def m007_titles_of_contexts(db: Database) -> None:
    """Add a context's own title; empty to name it after its documents."""
    db.execute("ALTER TABLE contexts ADD COLUMN own_title TEXT NOT NULL DEFAULT ''")


def m008_jobs_of_a_kind(db: Database) -> None:
    """Index jobs by kind, as the page lists uploads at every tick."""
    db.execute("CREATE INDEX jobs_by_kind ON jobs(kind, key)")


def m009_pages_of_questions(db: Database) -> None:
    """Add the pages to read again before an answer, as a person named them."""
    db.execute("ALTER TABLE turns ADD COLUMN pages TEXT NOT NULL DEFAULT ''")


def m010_jobs_and_turns_under_way(db: Database) -> None:
    """Index jobs by status and unfinished turns, which are queried several times a second."""
    db.execute("DROP INDEX jobs_by_kind")
    db.execute("CREATE INDEX jobs_by_kind ON jobs(kind, status, key)")
    db.execute("CREATE INDEX turns_answering ON turns(session_id) WHERE status = 'answering'")


def m011_documents_of_turns(db: Database) -> None:
    """Add the number of documents a turn was asked of.

    A turn copied to a context with more documents has the time of the original, and gets its number. If the original
    was deleted, the number is not known.
    """
    db.execute("ALTER TABLE turns ADD COLUMN asked_of INTEGER NOT NULL DEFAULT 0")
    db.execute("""
        UPDATE turns SET asked_of = (
            SELECT count(*) FROM sessions JOIN context_documents USING (context_id) WHERE sessions.id = session_id)""")
    copied = """
        SELECT min(asked_of), question, created_at FROM turns GROUP BY question, created_at
        HAVING min(asked_of) < max(asked_of)"""
    for first in db.execute(copied).fetchall():
        db.execute("UPDATE turns SET asked_of = ? WHERE question = ? AND created_at = ?", first)


def m012_pages_as_the_file_counts_them(db: Database) -> None:
    """Mark the stored pages of PDFs as counted in the file, as page names now mean the printed numbers."""
    rows = db.query("""
        SELECT key, pages, (
            SELECT json_group_array(format) FROM (
                SELECT format FROM sessions
                JOIN context_documents ON context_documents.context_id = sessions.context_id
                JOIN documents ON documents.id = document_id
                WHERE sessions.id = turns.session_id ORDER BY position)
        ) AS formats FROM turns WHERE pages != ''""")
    for row in list(rows):
        formats, named = json.loads(row["formats"]), []
        for each in row["pages"].split(", "):
            document, colon, _ = each.partition(":")
            of_pdf = formats[int(document) - 1 if colon else 0] == "pdf"
            named.append(f"{each} of the file" if of_pdf else each)
        db.execute("UPDATE turns SET pages = ? WHERE key = ?", [", ".join(named), row["key"]])


def m013_tokens_read_before(db: Database) -> None:
    """Add the number of tokens that a context took over from its base.

    Existing rows keep 0: their seconds include those of the base, so the two still match.
    """
    db.execute("ALTER TABLE contexts ADD COLUMN read_before INTEGER NOT NULL DEFAULT 0")


def m014_checksums_of_rows(db: Database) -> None:
    """Add checksums of rows, as a changed character in a title, question or answer went unnoticed."""
    keep_checksums(db)


def m015_pages_to_search(db: Database) -> None:
    """Create the text of documents in pieces, to be searched; a document is indexed at the first search after it."""
    db.execute("ALTER TABLE documents ADD COLUMN searchable INTEGER NOT NULL DEFAULT 0")
    db.execute("""
        CREATE TABLE pieces (
            key INTEGER PRIMARY KEY, document_id TEXT NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
            page INTEGER NOT NULL, start INTEGER NOT NULL, text TEXT NOT NULL)""")
    db.execute("CREATE INDEX pieces_by_document ON pieces(document_id)")
    db.table("pieces").enable_fts(["text"], create_triggers=True, tokenize="unicode61 remove_diacritics 2")


def m016_checksums_of_more_columns(db: Database) -> None:
    """Add measurements, warnings, errors and times to the checksums, as a changed one went unnoticed."""
    widen_checksums(db)


def m017_words_to_search(db: Database) -> None:
    """Index each letter of scripts without blanks as a word, and keep the long words of documents.

    The text of documents is indexed again at the next search.
    """
    db.execute("DELETE FROM pieces")
    db.execute("UPDATE documents SET searchable = 0")
    for table, columns in (("turns", ("question", "answer")), ("pieces", ("text",))):
        db.table(table).disable_fts()
        index_words(db, table, columns)
    db.execute("""
        CREATE TABLE long_words (
            document_id TEXT PRIMARY KEY REFERENCES documents(id) ON DELETE CASCADE, words TEXT NOT NULL)""")


def m018_notes(db: Database) -> None:
    """Add the parts of a turn that a person keeps as notes."""
    db.execute("ALTER TABLE turns ADD COLUMN kept TEXT NOT NULL DEFAULT '[]'")


def m019_linked_folders(db: Database) -> None:
    """Create linked folders, and mark documents that a newer version follows, or whose file is gone."""
    db.execute("ALTER TABLE documents ADD COLUMN newer TEXT")
    db.execute("ALTER TABLE documents ADD COLUMN gone_at REAL")
    db.execute("""
        CREATE TABLE linked_folders (
            folder TEXT PRIMARY KEY, at_once INTEGER NOT NULL, problem TEXT NOT NULL DEFAULT '',
            files TEXT NOT NULL DEFAULT '{}', left_out TEXT NOT NULL DEFAULT '{}', linked_at REAL NOT NULL,
            revision INTEGER NOT NULL DEFAULT 0)""")


for step in (
    m001_documents_and_contexts,
    m002_sessions_and_turns,
    m003_jobs_and_measurements,
    m004_reasoning,
    m005_leftovers,
    m006_measurements_of_subjects,
    m007_titles_of_contexts,
    m008_jobs_of_a_kind,
    m009_pages_of_questions,
    m010_jobs_and_turns_under_way,
    m011_documents_of_turns,
    m012_pages_as_the_file_counts_them,
    m013_tokens_read_before,
    m014_checksums_of_rows,
    m015_pages_to_search,
    m016_checksums_of_more_columns,
    m017_words_to_search,
    m018_notes,
    m019_linked_folders,
):
    migrations()(step)


def migrate(db: Database, steps: Migrations = migrations, stop_before: str | None = None) -> None:
    """Bring a database up to date: apply every pending step, or none.

    stop_before: name of a step to stop before; None for the newest schema.

    Raises:
        StoreError: a newer version made the database.
        Exception: a step's own error; the database is unchanged.
    """
    known = {step.name for step in steps._migrations}
    if unknown := [step.name for step in steps.applied(db) if step.name not in known]:
        raise StoreError(
            f"The database was made by a newer version: it has step {unknown[-1]}, this one ends at "
            f"{steps._migrations[-1].name}. Install the newer version, or use another home."
        )
    if not steps.pending(db):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        steps.apply(db, stop_before=stop_before)
    except BaseException:
        db.rollback()
        raise
    db.commit()
