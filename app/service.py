"""A home in use: its store, its model, and the contexts that are open in memory. All faces work on it."""

from pathlib import Path

import ingest
from app.home import home_folder
from app.lru_cache import LruCache
from app.machine.loaded_model import Models
from app.machine.model_names import remember_model
from app.reading.context_cache import ContextCache, OpenContext, OpenConversation
from app.reading.document_cache import DocumentCache
from app.reading.previews import Previews
from sessions import NotFound, Store

OPEN_CONVERSATIONS = 8
OPEN_BYTES = 8 << 30
"""Default limit for open contexts, on the device and in host memory each."""


class Service:
    """A home in use by this process. Any thread may use the store; one thread alone reads and answers."""

    def __init__(
        self,
        home: str | Path | None,
        model: str | None,
        device: str,
        seed: int | None = None,
        memory: int = OPEN_BYTES,
    ) -> None:
        """Open a home, or create it.

        Args:
            home: its folder; None for $STOCKPOT_HOME or ~/.stockpot.
            model: the model for new readings; None for `default_model`.
            device: auto, cpu or cuda.
            seed: seed for answers with a temperature and no seed of their own; None for a random one each time.
            memory: bytes for open contexts, on the device and in host memory each.

        Raises:
            sessions.StoreError: the folder cannot be used.
        """
        self.home = home_folder(home)
        self.store = Store(self.home)
        self.models = Models(model, device, self.forget_open, self.home)
        self.seed = seed
        self.document_cache = DocumentCache(lambda id: ingest.Document.from_json(self.store.documents.content(id)))
        self.previews = Previews(self.store.documents.find, self.document_cache.document)
        self.conversations: LruCache[str, OpenConversation] = LruCache(OPEN_CONVERSATIONS)
        self.contexts = ContextCache(memory, self.conversations)
        self.under_way: OpenContext | None = None  # the context that this process is reading, between two steps

    def choose_model(self, name: str) -> None:
        """Make a model the one for new readings, now and in later starts. name: as `canonical_model` returns it."""
        remember_model(self.home, name)
        self.models.default = name

    def read_here(self, context_id: str) -> OpenContext | None:
        """Return the text read so far of a context that this process is reading, else None. It may end at any time."""
        reading = self.under_way
        return reading if reading is not None and reading.row.id == context_id else None

    def forget_open(self) -> None:
        """Drop everything that is open in memory; it is on disk, and is opened again when needed."""
        self.conversations.clear()
        self.contexts.clear()

    def forget_deleted(self) -> None:
        """Drop open things that another program has deleted, because their files use disk until then."""
        held = ((self.contexts, self.store.contexts.get), (self.document_cache, self.store.documents.get))
        for opened, look_up in (*held, (self.conversations, self.store.sessions.get)):
            for id in opened.ids():
                try:
                    look_up(id)
                except NotFound:
                    opened.drop(id)

    def close(self) -> None:
        """Drop everything in memory and close the database."""
        self.previews.close()
        self.forget_open()
        self.store.close()
