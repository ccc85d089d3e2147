"""The engine: tokens in, contexts and answers out.

Lives here: the seam with transformers, attention, positions, memories, methods, the reading loop and conversations.
Not here: files, pages, HTTP, SQL, screens. Pages reach the engine as integers attached to token positions.
"""

from engine.context import Context, fingerprint
from engine.conversation import Conversation
from engine.errors import (
    ContextMismatch,
    EngineError,
    ModelError,
    ModelNotFound,
    OutOfMemory,
    SettingsError,
    UnsupportedModel,
    WeightsError,
)
from engine.measure import memory_report
from engine.method import Method
from engine.methods import DEFAULT_METHOD, METHODS, make_method
from engine.model import Encoding, Model, load_model
from engine.reader import Reader
from engine.records import Answer, AnswerPiece, Part, Passage, ReadProgress, Usage
from engine.sampling import Sampling

__all__ = [
    "DEFAULT_METHOD",
    "METHODS",
    "Answer",
    "AnswerPiece",
    "Context",
    "ContextMismatch",
    "Conversation",
    "Encoding",
    "EngineError",
    "Method",
    "Model",
    "ModelError",
    "ModelNotFound",
    "OutOfMemory",
    "Part",
    "Passage",
    "ReadProgress",
    "Reader",
    "Sampling",
    "SettingsError",
    "UnsupportedModel",
    "Usage",
    "WeightsError",
    "fingerprint",
    "load_model",
    "make_method",
    "memory_report",
]
