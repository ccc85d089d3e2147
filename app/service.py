"""What all faces stand on: one home with its store, its model and the contexts that are open in memory."""

from pathlib import Path

import ingest
from app.home import home_folder
from app.lru_cache import LruCache
from app.machine.loaded_model import Models
from app.reading.context_cache import ContextCache, OpenContext, OpenConversation
from app.reading.document_cache import DocumentCache
from sessions import NotFound, Store

OPEN_CONVERSATIONS = 8
OPEN_BYTES = 8 << 30
"""What open contexts may take together, on the device and in host memory each, unless somebody says otherwise."""


class Service:
    """A home in use by this process. The store may be used from any thread; one thread alone reads and answers."""

    def __init__(
        self,
        home: str | Path | None,
        model: str | None,
        device: str,
        seed: int | None = None,
        memory: int = OPEN_BYTES,
    ) -> None:
        """Open (or make) a home.

        Args:
            home: its folder; None for $STOCKPOT_HOME or ~/.stockpot.
            model: the model for new readings; None for `app.home.default_model`.
            device: auto, cpu or cuda.
            seed: of answers with a temperature, unless they have one; None takes another for each.
            memory: bytes that open contexts may take together, on the device and in host memory each.

        Raises:
            sessions.StoreError: the folder cannot be used.
        """
        self.home = home_folder(home)
        self.store = Store(self.home)
        self.models = Models(model, device, self.forget_open)
        self.seed = seed
        self.document_cache = DocumentCache(lambda id: ingest.Document.from_json(self.store.document_content(id)))
        self.conversations: LruCache[str, OpenConversation] = LruCache(OPEN_CONVERSATIONS)
        self.contexts = ContextCache(memory, self.conversations)
        self.under_way: OpenContext | None = None  # what this process reads, between two steps of the reading

    def read_here(self, context_id: str) -> OpenContext | None:
        """What has been read of a context, if this process is reading it. It may end while another thread asks."""
        reading = self.under_way
        return reading if reading is not None and reading.row.id == context_id else None

    def forget_open(self) -> None:
        """Let go of everything that is open in memory; it is on disk and is opened again when needed."""
        self.conversations.clear()
        self.contexts.clear()

    def forget_deleted(self) -> None:
        """Let go of what is open in memory of things that somebody else deleted, whose files take room till then."""
        held = ((self.contexts, self.store.context), (self.document_cache, self.store.document))
        for opened, look_up in (*held, (self.conversations, self.store.session)):
            for id in opened.ids():
                try:
                    look_up(id)
                except NotFound:
                    opened.drop(id)

    def close(self) -> None:
        """Let go of memory and of the database."""
        self.forget_open()
        self.store.close()
