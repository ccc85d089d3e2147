"""A home in use: its store, its model, and the contexts that are open in memory. All faces work on it."""

from pathlib import Path

import ingest
from app.home import home_folder
from app.jobs.here import Here
from app.jobs.work import Runner
from app.machine.model_names import remember_model
from app.reading.document_cache import DocumentCache
from app.reading.previews import Previews
from sessions import NotFound, Store

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
        self.seed = seed
        self.document_cache = DocumentCache(lambda id: ingest.Document.from_json(self.store.documents.content(id)))
        self.previews = Previews(self.store.documents.find, self.document_cache.document)
        self.here = Here(model, device, self.home, memory, self.document_cache)
        self.runner: Runner = self.here
        self.models, self.contexts, self.conversations = self.here.models, self.here.contexts, self.here.conversations
        self.forget_open, self.read_here = self.here.forget_open, self.here.read_here

    def choose_model(self, name: str) -> None:
        """Make a model the one for new readings, now and in later starts. name: as `canonical_model` returns it."""
        remember_model(self.home, name)
        self.models.default = name

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
