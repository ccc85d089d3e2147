"""A loaded model: token ids in, hidden states and logits out, with attention left to a memory."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date
from importlib import metadata
from pathlib import Path

import torch
from llguidance import LLTokenizer
from torch import Tensor
from transformers import AutoTokenizer, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.hub import cached_file

from engine.decode import recorder
from engine.decode.recorder import Recorder
from engine.errors import ModelError, ModelNotFound, OutOfMemory, SettingsError, UnsupportedModel
from engine.json_grammar import grammar_tokenizer
from engine.memory import Memory
from engine.memory_usage import oom_as_engine_error
from engine.models import architectures
from engine.models.attention_interface import attach, run, samples_of
from engine.models.chat import Chat, Encoding
from engine.models.checkpoint import named_files
from engine.models.configuration import read_config
from engine.models.file_layers import FileLinear
from engine.models.gguf.header import is_gguf, parts_of
from engine.models.gguf.model_file import description_of
from engine.models.gguf.tokens import tokenizer_of
from engine.models.load_errors import load_errors_as, refuse_pointers
from engine.models.loading import load_network
from engine.models.packed_file import ENDING, PackedFile
from engine.models.placement import device_named, dtype_on, fast_in_bfloat16
from engine.models.recurrent_state import RecurrentState
from engine.models.sizes import form_on, layers_of
from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.mass import no_source
from engine.sampling import own_sampling
from kernels.choice import implementation

log = logging.getLogger(__name__)

CHAT_TEMPLATE = "chat_template.json"
FINGERPRINTED_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
MOST_GROWTH = 32.0  # letters that a tokenizer's normalizer may make of one


class Model:
    """A loaded model whose attention is that of a memory."""

    def __init__(
        self,
        network: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        digest: str,
        folder: Path | None = None,
        stamp: str = "",
        packed: PackedFile | None = None,
    ) -> None:
        """Take a network over, in place.

        Args:
            network: on its device.
            tokenizer: with a chat template.
            name: for messages and lists.
            digest: a hash of weights, configuration and tokenizer.
            folder: that it was loaded from, where its sidecar weights lie.
            stamp: `model_stamp` before it was loaded.
            packed: see `prepare_products`.

        Raises:
            UnsupportedModel: architecture, RoPE or template that the engine cannot use.
        """
        architectures.check(network.config)
        network.train(False)
        network.requires_grad_(False)
        self.network = network
        self.architecture = architectures.architecture_of(network.config)
        self.tokenizer = tokenizer
        self.name = name
        self.fingerprint = digest
        self.stamp = stamp
        self.chat = Chat(tokenizer)
        planned = layers_of(network)
        self.spec: ModelSpec = attach(network, folder, packed)
        _check_windows(network.config.model_type, planned, self.spec.layers)
        self.recorder = Recorder(network)
        self.stop_ids = _stop_ids(network, tokenizer)
        self.sampling = own_sampling(network.generation_config)

    @property
    def device(self) -> torch.device:
        """Device that the model computes on."""
        return self.spec.device

    def on(self, day: date) -> Model:
        """Return the same model with that date in its template; itself if the template states no date before a text."""
        chat = Chat(self.tokenizer, day)
        if chat.prefix == self.chat.prefix:
            return self
        other = copy.copy(self)
        other.chat = chat
        return other

    def forward(self, ids: Tensor, memory: Memory, source: Tensor, repeated: bool = False) -> Tensor:
        """Pass tokens through the model; the memory answers attention but remembers nothing before its `end_pass`.

        Args:
            ids: int64 [T].
            memory: that attends.
            source: int32 [T], the source position each token stands for, -1 for none.
            repeated: more passes of one token follow, so that it pays to record one.

        Returns:
            Hidden states [T, hidden] after the last norm.

        Raises:
            OutOfMemory: memory ran out; the memory remembers the same as before.
        """
        with oom_as_engine_error(self.device, f"in a pass of {len(ids)} tokens"), torch.no_grad():
            memory.begin_pass(source)
            if repeated and len(ids) == 1 and (hidden := self.recorder.step(ids, memory)) is not None:
                return hidden
            state = RecurrentState(memory.recurrent.now) if self.spec.recurrent else None
            scaled = self.architecture.scales_queries
            places = memory.position_ids(len(ids)).to(self.device, non_blocking=True) if scaled else None
            ids = ids.to(self.device, non_blocking=True)
            hidden = run(self.network, ids, memory, memory.evictor.extra_tokens(), state, places)
            if state:
                memory.recurrent.coming = state.states
            return hidden

    def make_room(self, memory: Memory, tokens: int) -> None:
        """Let a memory have room for so many more tokens, if these are recorded: what moves is recorded anew."""
        if self.recorder.possible:
            with suppress(OutOfMemory), oom_as_engine_error(self.device, "before an answer"), torch.no_grad():
                memory.make_room(tokens)

    def record(self, memory: Memory) -> None:
        """Record the passes of the tokens that come next, one by one, as far as they are recorded."""
        if self.recorder.possible:
            with oom_as_engine_error(self.device, "before an answer"), torch.no_grad():
                memory.begin_pass(no_source(1))
                self.recorder.prepare(memory)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [..., vocabulary] in float32 for hidden states [..., hidden]."""
        config = self.network.config
        logits: Tensor = self.network.lm_head(hidden).float()
        if name := self.architecture.logit_factor:
            logits = logits * float(getattr(config, name))
        if name := self.architecture.logit_divisor:
            logits = logits / float(getattr(config, name))
        softcap = getattr(config, "final_logit_softcapping", None)
        return torch.tanh(logits / softcap) * softcap if softcap else logits

    @functools.cached_property
    def grammar_tokenizer(self) -> LLTokenizer:
        """Tokens of the model, for answers that are JSON; see `grammar_tokenizer`."""
        ends = self.stop_ids if self.chat.end is None else self.stop_ids | {self.chat.end}
        return grammar_tokenizer(self.tokenizer, int(self.network.config.vocab_size), ends)

    def encode(self, text: str, on_piece: Callable[[int], None] = lambda characters: None) -> Encoding:
        """Return the tokens of a document's text, see `Chat.encode`."""
        return self.chat.encode(text, on_piece)

    def decode(self, ids: list[int]) -> str:
        """Return the text of tokens, without special tokens."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True)  # type: ignore[assignment]
        return text

    def turn_length(self, text: str) -> int:
        """Return the number of tokens that a text takes as a turn."""
        return self.chat.turn_length(text)


def _check_windows(kind: str, planned: Sequence[LayerSpec], found: Sequence[LayerSpec]) -> None:
    """Refuse a model if some of its sliding windows are applied by a mask that attention does not see.

    Raises:
        UnsupportedModel: naming the architecture.
    """
    if [each.sliding_window for each in planned] != [each.sliding_window for each in found]:
        raise UnsupportedModel(
            f"'{kind}' with sliding windows as in its config.json has not been shown to match transformers in Stockpot."
        )


def load_model(
    source: str | Path,
    device: str = "auto",
    dtype: torch.dtype | None = None,
    quantize: str = "none",
    packed: Path | None = None,
) -> Model:
    """Load a model from a folder, a GGUF file or a hub id.

    device: "auto" takes the GPU if there is one. dtype: see `dtype_on` for the default.
    quantize: "none", "8bit", "nf4" or "int4" (on a CPU for what was read so), there also "int8", and "blocks" for a
        GGUF file.
    packed: folder for weights that were packed for products, which later starts map; None to pack them every time.

    Raises, before any weight is read:
        ModelNotFound: nothing that can be loaded is there.
        UnsupportedModel: see `loading.py` and `architectures.py`; or there is no chat template.
        SettingsError: this machine does not have the device, the quantisation does not go with the model, or an
            environment variable has a value that is unknown.
        OutOfMemory: the weights do not fit the memory that is free.
    """
    recorder.choice()
    try:
        implementation()
    except ValueError as error:
        raise SettingsError(str(error)) from error
    place = device_named(device)
    of_packed = _packed_stamp(source) if packed is not None and is_gguf(source) else ""
    config, stamp = read_config(source), model_stamp(source, device, dtype, quantize)
    tokenizer = load_chat(source, config).tokenizer
    network = load_network(source, config, place, dtype or dtype_on(place, config), quantize)
    log.info("loaded %s on %s", source, place)
    folder = Path(source).resolve() if Path(source).is_dir() else None
    digest = _digest(network, tokenizer, Path(source))
    kept = [each.kept for each in network.modules() if isinstance(each, FileLinear)]
    if packed is None or not kept:
        return Model(network, tokenizer, Path(source).name, digest, folder, stamp)
    unchanged = functools.partial(_is_unchanged, source, of_packed)
    with PackedFile(_packed_path(packed, source), of_packed, kept, unchanged) as file:
        return Model(network, tokenizer, Path(source).name, digest, folder, stamp, file)


def _packed_path(folder: Path, source: str | Path) -> Path:
    """Return the file for the packed weights of a GGUF file: one for each path."""
    path = parts_of(source)[0].resolve()
    return folder / f"{path.stem}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}{ENDING}"


def _packed_stamp(source: str | Path) -> str:
    """Return a hash that changes when the weights in a GGUF file, or the code that packs them, may have changed."""
    facts = [*_loaders(), *_stats_of(parts_of(source))]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _is_unchanged(source: str | Path, stamp: str) -> bool:
    """Return whether a GGUF file is there, and `_packed_stamp` is still the same."""
    with suppress(ModelNotFound, OSError):
        return _packed_stamp(source) == stamp
    return False


def weights_form(source: str | Path, device: str = "auto", quantize: str = "none") -> str:
    """Return the `quantize` for `load_model`: the one asked for, or the default of this model on this device.

    Raises:
        SettingsError: this machine does not have the device.
    """
    place = device_named(device)
    with suppress(ModelError):  # `load_model` will tell
        if quantize == "none" and is_gguf(source):
            return form_on(place, dtype_on(place, read_config(source)), quantize, in_gguf=True)
    return quantize


def model_stamp(
    source: str | Path, device: str = "auto", dtype: torch.dtype | None = None, quantize: str = "none"
) -> str:
    """Return a hash that stays the same only if `load_model` would return a model of the same fingerprint.

    It covers the arguments, the versions of packages and code, and the names, sizes and times of the files, but
    not their contents. A commit of the hub never changes.

    Raises:
        SettingsError: this machine does not have the device.
    """
    place = device_named(device)
    how = str(dtype or os.environ.get("STOCKPOT_DTYPE")), fast_in_bfloat16(place)
    facts: list[object] = [*_loaders(), place.type, *how, quantize]
    if Path(source).is_dir() or is_gguf(source):
        files = set() if is_gguf(source) else {Path(each.path) for each in os.scandir(source) if each.is_file()}
        with suppress(ModelNotFound):  # `load_model` will tell
            files |= set(parts_of(source) if is_gguf(source) else named_files(Path(source)))
        facts += _stats_of(sorted(files))
    else:
        facts.append(str(cached_file(source, "config.json")))
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _stats_of(files: Sequence[Path]) -> list[tuple[object, ...]]:
    """Return names, sizes and times of files."""
    stats = [(str(path), path.stat()) for path in files]
    return [(name, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in stats]


@functools.cache
def _loaders() -> list[str]:
    """Return the versions of packages, and a hash of our code, that fingerprints depend on."""
    found = [metadata.version(each) for each in ("torch", "transformers", "gguf", "numpy")]
    with suppress(metadata.PackageNotFoundError):
        found.append(metadata.version("bitsandbytes"))
    own = hashlib.sha256()
    for path in (Path(__file__), *sorted((Path(__file__).parent / "models").rglob("*.py"))):
        own.update(path.read_bytes())
    return [*found, own.hexdigest()]


def load_chat(source: str | Path, config: PretrainedConfig) -> Chat:
    """Return the tokenizer and chat template of a model with that configuration.

    Raises:
        ModelNotFound: there is no tokenizer, or it is damaged.
        UnsupportedModel: no usable chat template, or ids that the model has no embedding for.
    """
    if Path(source).is_dir():
        whole = Path(source) / "tokenizer.json"
        refuse_pointers(
            [whole if whole.exists() else whole.with_suffix(".model"), whole.with_name("tokenizer_config.json")]
        )
    with load_errors_as(ModelNotFound, f"The model at '{source}' has no tokenizer that can be loaded"):
        tokenizer = tokenizer_of(source) if is_gguf(source) else _tokenizer(source)
    if (growth := _normalizer_growth(tokenizer)) > MOST_GROWTH:
        raise UnsupportedModel(
            f"The tokenizer at '{source}' makes {growth:,.0f} letters of one before it cuts a text: fetch another one."
        )
    chat = Chat(tokenizer)
    largest = max([*_ids_of_text(tokenizer), *chat.own_ids()], default=0)
    if largest >= int(config.vocab_size):
        raise UnsupportedModel(
            f"The tokenizer at '{source}' has ids up to {largest:,}, and its config.json has embeddings for "
            f"{config.vocab_size:,} (vocab_size): fetch the tokenizer that goes with the weights."
        )
    return chat


def _tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a folder or a hub id."""
    # Without trust_remote_code=False, transformers asks at the terminal whether to run the model's own code.
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except ValueError as error:
        if "custom code" in str(error):
            raise UnsupportedModel(
                f"The tokenizer of the model at '{source}' is code of its own, which is never run: choose another "
                f"model, or put a tokenizer.json beside it."
            ) from error
        raise
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    tokenizer.chat_template = tokenizer.chat_template or _template_beside(source)
    return tokenizer


def _normalizer_growth(tokenizer: PreTrainedTokenizerBase) -> float:
    """Return how many letters the rules of a tokenizer's normalizer, one after the other, may make of one."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = [json.loads(backend.normalizer.__getstate__())] if backend is not None and backend.normalizer else []
    growth = 1.0
    while rules:
        rule = rules.pop()
        rules += rule.get("normalizers", ())
        if rule.get("type") == "Replace":
            growth *= max(1.0, len(rule["content"]) / (len(rule["pattern"].get("String", "")) or 1))
    return growth


def _template_beside(source: str | Path) -> str | None:
    """Return the chat template of a vision model from its own file, None if there is none."""
    quietly = dict.fromkeys(("_raise_exceptions_for_missing_entries", "_raise_exceptions_for_connection_errors"), False)
    path = cached_file(source, CHAT_TEMPLATE, **quietly)
    return None if path is None else str(json.loads(Path(path).read_text(encoding="utf-8"))["chat_template"])


def _ids_of_text(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return all ids that a text can become.

    Special tokens are left out: they stay text, and some models have more of them than embeddings.
    """
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return set(tokenizer.get_vocab().values()) - special


def _digest(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> str:
    """Return a hash of a sample of each weight, of the configuration and of the tokenizer.

    folder: a folder or a GGUF file.
    """
    digest = hashlib.sha256()
    digest.update(json.dumps(network.config.to_diff_dict(), sort_keys=True, default=str).encode())
    digest.update(str(network.dtype).encode())
    for name in FINGERPRINTED_FILES:
        if (folder / name).is_file():
            digest.update((folder / name).read_bytes())
    if is_gguf(folder):
        digest.update(description_of(folder))
    digest.update(str(tokenizer.chat_template).encode())
    for name, shape, sample in samples_of(network):
        digest.update(name.encode() + str(shape).encode() + sample.float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _stop_ids(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the tokens that end an answer, by the generation config and the tokenizer."""
    generation = network.generation_config
    listed = generation.eos_token_id if generation is not None else None
    stops = listed if isinstance(listed, list) else [listed]
    return frozenset(int(stop) for stop in [*stops, tokenizer.eos_token_id] if stop is not None)
