"""The loaded model. Only one is held at a time, because two may not fit."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.home import PACKED, home_folder
from app.machine.model_names import canonical_model, default_model, model_source, split_model

if TYPE_CHECKING:
    import engine


class Models:
    """Loads models by name and keeps the last one."""

    def __init__(
        self, default: str | None, device: str, on_leave: Callable[[], None], home: Path | None = None
    ) -> None:
        """Start without a loaded model.

        Args:
            default: model for new readings: "smollm2", "pocket", a path or a hub id, each also with ":8bit" and so on;
                None
                for `default_model`.
            device: auto, cpu or cuda.
            on_leave: called before another model replaces the loaded one, to drop whatever uses it.
            home: the home folder, whose models have short names, and where packed weights lie; None for the default.
        """
        self.default = canonical_model(default or default_model(home), home)
        self.device = device
        self._packed = home_folder(home) / PACKED
        self._on_leave = on_leave
        self._lock = threading.Lock()
        self._held: tuple[str, engine.Model] | None = None

    def get(self, name: str | None = None) -> "engine.Model":
        """Return the model with this name, or the default one; load it if it is not held.

        Raises:
            engine.ModelNotFound, engine.UnsupportedModel, engine.OutOfMemory: it cannot be used here.
        """
        import engine

        wanted = name or self.default
        with self._lock:
            if self._held is None or self._held[0] != wanted:
                if self._held is not None:
                    self._held = None
                    self._on_leave()
                source = model_source(wanted)
                quantize = engine.weights_form(source, self.device, split_model(wanted)[1])
                loaded = engine.load_model(source, self.device, quantize=quantize, packed=self._packed)
                self._held = (wanted, loaded)
            return self._held[1]

    def chat(self, name: str) -> "engine.Chat":
        """Return a model's chat template with a tokenizer that nobody else uses. Does not load the model.

        Raises:
            engine.ModelNotFound, engine.UnsupportedModel: it cannot be used.
        """
        import engine

        source = model_source(name)
        return engine.load_chat(source, engine.read_config(source))

    def stamp(self, name: str) -> str:
        """Return `engine.model_stamp` of a model, which changes when its files do. Does not load the model.

        For the loaded model it is the stamp from before it was loaded.
        """
        import engine

        held = self._held
        if held is not None and held[0] == name:
            return held[1].stamp
        quantize = engine.weights_form(model_source(name), self.device, split_model(name)[1])
        return engine.model_stamp(model_source(name), self.device, quantize=quantize)

    @property
    def held(self) -> str | None:
        """Name of the loaded model, or None."""
        held = self._held
        return held[0] if held else None

    @property
    def device_in_use(self) -> str | None:
        """Device of the loaded model, in words."""
        held = self._held
        return str(held[1].device) if held else None
