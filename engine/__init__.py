"""The engine: tokens in, contexts and answers out.

Here: models and their attention interface, positions, memories, methods, the reading loop and conversations.
Not here: files, pages, HTTP, SQL, screens. Pages reach the engine as integers attached to token positions.
"""

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
from engine.finding.finder import Finder
from engine.json_grammar import grammar_of
from engine.loops.answering import (
    LONGEST_READ_AGAIN,
    ReadText,
    answer_from_text,
    answer_without_model,
    read_alone,
)
from engine.loops.ask_options import AskOptions
from engine.loops.context import Context, fingerprint
from engine.loops.conversation import Conversation
from engine.loops.reader import Reader, extended
from engine.memory_usage import free_bytes, memory_report
from engine.methods import (
    DEFAULT_METHOD,
    HOST_STORES,
    METHODS,
    make_method,
    quicker_stores,
    suited_method,
    suited_stores,
)
from engine.methods.base import Method
from engine.model import Model, load_chat, load_model, model_stamp, weights_form
from engine.models.chat import Chat, Encoding
from engine.models.checkpoint import check_files
from engine.models.configuration import read_config
from engine.models.placement import device_named, dtype_on
from engine.models.sizes import model_sizes
from engine.models.spec import ModelSpec, window_of
from engine.parts.archive.options import AUTO
from engine.parts.flash import choice as flash_choice
from engine.planning.plan import Machine, Plan
from engine.planning.planner import GPU_BASE, Planner
from engine.planning.rates import Rates, measure_rates
from engine.records import Answer, AnswerPiece, LoadedParts, Part, Passage, ReadProgress, Sentence, Usage
from engine.sampling import Sampling
from kernels.choice import implementation as kernels_choice

__all__ = [
    "AUTO",
    "DEFAULT_METHOD",
    "GPU_BASE",
    "HOST_STORES",
    "LONGEST_READ_AGAIN",
    "METHODS",
    "Answer",
    "AnswerPiece",
    "AskOptions",
    "Chat",
    "Context",
    "ContextMismatch",
    "Conversation",
    "Encoding",
    "EngineError",
    "Finder",
    "LoadedParts",
    "Machine",
    "Method",
    "Model",
    "ModelError",
    "ModelNotFound",
    "ModelSpec",
    "OutOfMemory",
    "Part",
    "Passage",
    "Plan",
    "Planner",
    "Rates",
    "ReadProgress",
    "ReadText",
    "Reader",
    "Sampling",
    "Sentence",
    "SettingsError",
    "UnsupportedModel",
    "Usage",
    "WeightsError",
    "answer_from_text",
    "answer_without_model",
    "check_files",
    "device_named",
    "dtype_on",
    "extended",
    "fingerprint",
    "flash_choice",
    "free_bytes",
    "grammar_of",
    "kernels_choice",
    "load_chat",
    "load_model",
    "make_method",
    "measure_rates",
    "memory_report",
    "model_sizes",
    "model_stamp",
    "quicker_stores",
    "read_alone",
    "read_config",
    "suited_method",
    "suited_stores",
    "weights_form",
    "window_of",
]
