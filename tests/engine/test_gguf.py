"""Models in GGUF files equal the networks that the files were written from."""

from __future__ import annotations

import os
import re
import resource
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, quants
from transformers import AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedModel

from benchmarks.gguf import llama_logits
from engine import ModelNotFound, UnsupportedModel, check_files, load_chat, load_model, model_stamp, read_config
from engine.memory import Memory
from engine.models.architectures import ARCHITECTURES
from engine.models.building import outline
from engine.models.gguf.header import BLOCKS, FLOATS, read_header
from engine.models.gguf.model_file import generation_of, weights_of
from engine.models.gguf.weights import fill
from engine.models.loading import load_network
from engine.models.sizes import model_sizes
from engine.parts.mass import NOT_IN_SOURCE
from engine.parts.slots import SlotStore
from tests.engine.gguf_files import MODELS, merging_tokenizer, tiny_network, tokenizer_facts, write_gguf
from tests.engine.gguf_layouts import LAYOUTS, layout_of
from tests.engine.gguf_writing import write_layout

LLAMA_CPP = os.environ.get("LLAMA_CPP_PYTHON", "")
CPU = torch.device("cpu")
IDS = torch.randint(4, 260, (80,), generator=torch.Generator().manual_seed(1))
DOCS = Path(__file__).parents[2] / "docs" / "models.md"


def loaded(path: Path, quantize: str = "none") -> tuple[PretrainedConfig, PreTrainedModel]:
    config = read_config(path)
    return config, load_network(path, config, CPU, torch.float32, quantize)


def logits(network: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = network(input_ids=IDS[None]).logits[0]
    return found


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a file of a tiny Llama."""
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", tiny_network("llama"), "llama")


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_the_network_that_was_written(name: str, tmp_path: Path) -> None:
    architecture, kind, _ = MODELS[name]
    network = tiny_network(name)
    path = write_gguf(tmp_path / "x.gguf", network, architecture)
    config, own = loaded(path)
    assert config.model_type == kind
    for theirs, ours in zip(network.state_dict().items(), own.state_dict().items(), strict=True):
        assert theirs[0] == ours[0]
        torch.testing.assert_close(ours[1], theirs[1], atol=2e-7, rtol=1e-6)
    torch.testing.assert_close(logits(own), logits(network), atol=5e-5, rtol=1e-4)
    assert model_sizes(config, torch.float32).parameters == sum(each.numel() for each in network.parameters())


@pytest.mark.parametrize("name", LAYOUTS)
def test_logits_are_those_of_the_network_whose_weights_were_rearranged(name: str, tmp_path: Path) -> None:
    layout = layout_of(name)
    config, own = loaded(write_layout(tmp_path / "x.gguf", layout))
    assert config.model_type == (layout.kind or layout.network.config.model_type)
    if not layout.folded:
        theirs = layout.network.state_dict()
        for key, ours in own.state_dict().items():
            torch.testing.assert_close(ours, theirs[key], atol=3e-7, rtol=1e-6, msg=key)
    torch.testing.assert_close(logits(own), logits(layout.network), atol=5e-5, rtol=1e-4)
    sizes = model_sizes(config, torch.float32)
    assert sizes.parameters == sum(each.numel() for each in layout.network.parameters())


@pytest.mark.skipif(not LLAMA_CPP, reason="LLAMA_CPP_PYTHON names no interpreter with llama-cpp-python")
@pytest.mark.parametrize("name", [name for name in MODELS if name != "gpt-oss-yarn"])
def test_llama_cpp_reads_the_same_of_what_was_written(name: str, tmp_path: Path) -> None:
    """Check the writer of these files against llama.cpp.

    llama.cpp keeps keys in float16, so it sometimes chooses another expert. It also rounds the bounds of YaRN, which
    gpt-oss does not by its config.json.
    """
    network = tiny_network(name)
    path = write_gguf(tmp_path / "x.gguf", network, MODELS[name][0])
    (theirs,) = llama_logits(Path(LLAMA_CPP), path, [IDS.tolist()])
    far = (theirs - logits(network)).abs().amax(-1)
    assert (far < 0.03).float().mean() > 0.95


def test_every_architecture_is_tried() -> None:
    written = {(name, kind) for name, kind, _ in MODELS.values()}
    for layout in map(layout_of, LAYOUTS):
        written.add((layout.architecture, layout.kind or layout.network.config.model_type))
    rows = [row for row in ARCHITECTURES.values() if row.gguf]
    assert written == {(name, row.kind) for row in rows for name in row.gguf.names}  # type: ignore[union-attr]


def test_the_docs_name_every_type_of_weights() -> None:
    section = DOCS.read_text(encoding="utf-8").split("## GGUF files")[1].split("\n## ")[0]
    types = re.search(r"Types of weights: ([^.]+)\.", section)
    assert types is not None
    assert set(re.split(r",\s+", types[1])) == {each.name for each in FLOATS | BLOCKS}


def test_a_loaded_model_passes_tokens_as_the_network_does(llama: Path) -> None:
    model = load_model(llama, "cpu")
    memory = Memory(model.spec, SlotStore(model.spec))
    hidden = []
    for chunk in IDS.split(37):
        hidden.append(model.forward(chunk, memory, torch.full((len(chunk),), NOT_IN_SOURCE, dtype=torch.int32)))
        memory.end_pass()
    torch.testing.assert_close(model.logits(torch.cat(hidden)), logits(tiny_network("llama")), atol=5e-5, rtol=1e-4)
    assert (model.spec.window, model.stop_ids, model.name) == (512, {3}, "tiny.gguf")


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2"])
def test_weights_are_those_of_transformers_own_conversion(name: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", tiny_network(name), MODELS[name][0], GGMLQuantizationType.Q8_0)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32).state_dict()
    ours = loaded(path)[1].state_dict()
    for key, weight in ours.items():
        torch.testing.assert_close(weight, theirs[key], atol=0, rtol=0, msg=key)


def coded(kind: GGMLQuantizationType, rows: int, columns: int) -> np.ndarray[Any, Any]:
    """Make rows of a type, from random numbers if the package gguf can, else from random bytes with small scales."""
    random = np.random.default_rng(0)
    try:
        return quants.quantize(random.normal(size=(rows, columns)).astype(np.float32), kind)
    except NotImplementedError:
        weights, size = GGML_QUANT_SIZES[kind]
        return random.integers(0, 60, (rows, columns // weights * size), dtype=np.uint8)


@pytest.mark.parametrize("kind", sorted(FLOATS | BLOCKS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_type_of_weights_is_unpacked(kind: GGMLQuantizationType, dtype: torch.dtype, tmp_path: Path) -> None:
    codes = coded(kind, 6, 512)
    expected = torch.from_numpy(quants.dequantize(codes, kind).copy()).reshape(6, 512)
    assert expected.isfinite().all()
    assert expected.std() > 0
    file = tmp_path / "x.gguf"
    write_gguf(file, tiny_network("llama"), "llama")
    stored = read_header(file).tensors["output_norm.weight"]
    raw = tmp_path / "raw"
    raw.write_bytes(b"before" + codes.tobytes())
    whole = torch.empty(6, 512, dtype=dtype)
    fill(whole, type(stored)(raw, 6, kind, (6, 512)))
    assert torch.equal(whole, expected.to(dtype))
    raw.write_bytes(codes.tobytes())
    with pytest.raises(ModelNotFound, match="cut short while it was read"):
        fill(whole, type(stored)(raw, 6, kind, (6, 512)))


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_a_whole_file_in_one_type(kind: str, tmp_path: Path) -> None:
    """Check that rows of queries and keys are reordered after they are unpacked."""
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", GGMLQuantizationType[kind])
    reader = {each.name: each for each in GGUFReader(path).tensors}
    stored = reader["blk.1.attn_k.weight"]
    plain = torch.from_numpy(quants.dequantize(stored.data, stored.tensor_type)).reshape(2, 16, 2, 128)
    ours = loaded(path)[1].get_parameter("model.layers.1.self_attn.k_proj.weight")
    assert torch.equal(ours, plain.transpose(1, 2).reshape(64, 128))


@pytest.mark.parametrize("name", ["llama", "qwen3moe"])
@pytest.mark.parametrize("quantize", ["8bit", "nf4"])
def test_weights_are_quantised_as_those_of_a_folder(name: str, quantize: str, tmp_path: Path) -> None:
    network = tiny_network(name)
    network.save_pretrained(tmp_path / "folder")
    path = write_gguf(tmp_path / "x.gguf", network, MODELS[name][0])
    config = read_config(tmp_path / "folder")
    theirs = load_network(tmp_path / "folder", config, CPU, torch.float32, quantize)
    ours = loaded(path, quantize)[1]
    for one, other in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert one[0] == other[0]
        if isinstance(one[1], torch.Tensor) and "norm" not in one[0]:
            assert torch.equal(one[1], other[1]), one[0]


def test_several_files_are_one_model(tmp_path: Path, llama: Path) -> None:
    write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", parts=20)
    parts = sorted(tmp_path.glob("*.gguf"))
    assert parts[0].name == "x-00001-of-00003.gguf"
    weights = loaded(llama)[1].state_dict()
    for path in (parts[0], parts[2]):
        own = loaded(path)[1].state_dict()
        assert all(torch.equal(own[name], weight) for name, weight in weights.items())
    stamp = model_stamp(parts[0], "cpu")
    parts[2].touch()
    assert model_stamp(parts[0], "cpu") != stamp
    parts[1].unlink()
    with pytest.raises(ModelNotFound, match=r"incomplete: fetch x-00002-of-00003\.gguf"):
        read_config(parts[0])


def test_the_tokenizer_is_the_one_that_was_written(llama: Path) -> None:
    text = "Of 1984 and 12 men: it’s <|end|> “naïve” \n\n\tindeed  so."
    config = read_config(llama)
    chat, own = load_chat(llama, config), merging_tokenizer()
    assert chat.encode(text).ids.tolist() == own(text, split_special_tokens=True)["input_ids"]
    assert chat.tokenizer("a<|user|>b")["input_ids"] == own("a<|user|>b")["input_ids"]
    assert chat.tokenizer.chat_template == own.chat_template
    assert (chat.tokenizer.eos_token, chat.tokenizer.bos_token) == ("<|end|>", "<|bos|>")
    theirs = AutoTokenizer.from_pretrained(llama.parent, gguf_file=llama.name)
    assert chat.tokenizer(text)["input_ids"] == theirs(text)["input_ids"]


def test_digits_stand_alone_where_the_file_says_so(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **{"tokenizer.ggml.pre": "smollm"})
    backend = load_chat(path, read_config(path)).tokenizer.backend_tokenizer  # type: ignore[attr-defined]
    assert [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str("in 1984")] == ["in", "Ġ", "1", "9", "8", "4"]


@pytest.mark.parametrize(
    ("cuts", "pieces"),
    [
        ("deepseek-v3", ["He", " said", " ", "198", "4", ":", "中文", "of", "\n\n", " it", "'s"]),
        ("hunyuan-dense", ["He", " said", " ", "198", "4", ":", "中文", "of", "\n\n", " it", "'s"]),
        ("glm4", ["He", " said", " ", "198", "4", ":中文of", "\n\n", " it", "'s"]),
        ("chatglm-bpe", ["He", " said", " ", "198", "4", ":中文of", "\n\n", " it", "'s"]),
        ("hunyuan", ["He", " said", " ", "1", "9", "8", "4", ":中文of", "\n\n", " it", "'s"]),
    ],
)
def test_text_is_cut_as_the_file_says(cuts: str, pieces: list[str], tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **{"tokenizer.ggml.pre": cuts})
    backend = load_chat(path, read_config(path)).tokenizer.backend_tokenizer  # type: ignore[attr-defined]
    text = "He said 1984:中文of\n\n it's"
    assert [text[begin:end] for _, (begin, end) in backend.pre_tokenizer.pre_tokenize_str(text)] == pieces


def test_a_marker_whose_letters_are_no_bytes_is_one_token(tmp_path: Path) -> None:
    tokens = list(tokenizer_facts()["tokenizer.ggml.tokens"])
    tokens[1], tokens[2] = "<｜User｜>", "<|｜Aside｜>"
    kinds = [3, 3, 4, 3] + [1] * (len(tokens) - 4)
    facts = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.pre": "deepseek-v3"}
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **facts)
    tokenizer = load_chat(path, read_config(path)).tokenizer
    ids = tokenizer("a<｜User｜>b<|｜Aside｜>")["input_ids"]
    assert (ids[1], ids[3], len(ids)) == (1, 2, 4)
    assert tokenizer.decode(ids) == "a<｜User｜>b<|｜Aside｜>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "ab<|｜Aside｜>"


def test_the_tokenizer_of_gemma_4_puts_spaces_into_words(tmp_path: Path) -> None:
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<|channel>"]
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "\n", *"amen", "en", "▁m", "▁men"]
    kinds = [3, 3, 3, 2, 3, 4] + [6] * 256 + [1] * 9
    facts: dict[str, Any] = {
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.pre": None,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": ["e n", "▁ m", "▁m en"],
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.add_bos_token": True,
    }
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **facts)
    tokenizer = load_chat(path, read_config(path)).tokenizer
    ids = tokenizer("<|turn>men men\né<|channel>")["input_ids"]
    words = ["<|turn>", "m", "en", "▁men", "\n", "<0xC3>", "<0xA9>", "<|channel>"]
    assert tokenizer.convert_ids_to_tokens(ids) == words
    assert tokenizer.decode(ids) == "<|turn>men men\né<|channel>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "men men\né<|channel>"


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        ({"tokenizer.ggml.pre": "nobody"}, "cuts text as 'nobody', which is not known"),
        ({"tokenizer.ggml.pre": None}, "cuts text as 'None', which is not known"),
        ({"tokenizer.ggml.model": "bert"}, "of the kind 'bert', which is not read"),
        ({"tokenizer.chat_template": None}, "has no chat template"),
    ],
)
def test_a_tokenizer_that_is_not_known_is_refused(fact: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **fact)
    with pytest.raises(UnsupportedModel, match=message):
        load_chat(path, read_config(path))


def test_how_to_generate_is_what_the_file_says(tmp_path: Path, llama: Path) -> None:
    said = {"general.sampling.temp": 0.5, "general.sampling.top_k": 7, "tokenizer.ggml.eot_token_id": 2}
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **said)
    found = generation_of(path)
    assert (found.temperature, found.top_k, found.do_sample, found.eos_token_id) == (0.5, 7, True, [3, 2])
    assert load_model(path, "cpu").stop_ids == {2, 3}
    assert not generation_of(llama).do_sample


def test_a_fingerprint_is_of_weights_and_tokenizer(tmp_path: Path, llama: Path) -> None:
    own = load_model(llama, "cpu").fingerprint
    again = write_gguf(tmp_path / "a.gguf", tiny_network("llama"), "llama")
    template = write_gguf(tmp_path / "b.gguf", tiny_network("llama"), "llama", **{"tokenizer.ggml.eot_token_id": 2})
    weights = write_gguf(tmp_path / "c.gguf", tiny_network("llama", seed=1), "llama")
    assert load_model(again, "cpu").fingerprint == own
    assert own not in (load_model(template, "cpu").fingerprint, load_model(weights, "cpu").fingerprint)


def test_a_plan_reads_no_weights(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.models.gguf.weights.np.fromfile", None)
    config = read_config(llama)
    check_files(llama, config)
    sizes = model_sizes(config, torch.float32)
    assert sizes.weight_bytes("none") == 4 * sum(each.numel() for each in tiny_network("llama").parameters())
    with pytest.raises(ModelNotFound):
        loaded(llama)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"general.architecture": "bloom"}, "The architecture 'bloom' is not read from GGUF files"),
        (
            {"general.architecture": "clip"},
            "is a part of a model, for pictures or sound: choose the file with its text",
        ),
        ({"general.architecture": "hunyuan-dense"}, "'hunyuan_v1_dense' cannot be used: it scales queries and keys"),
        ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 4.0}, "scales RoPE by 'longrope'"),
        ({"llama.attention.sliding_window": 64}, "'llama' with sliding windows is not read"),
    ],
)
def test_what_is_not_known_is_refused(facts: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **facts)
    with pytest.raises(UnsupportedModel, match=message):
        read_config(path)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"llama.block_count": None}, "says llama.block_count: None, and it must be a number above 0"),
        ({"llama.embedding_length": "wide"}, "says llama.embedding_length: wide"),
        ({"llama.block_count": 7}, "says that it has 7 layers, and holds weights of 6"),
        ({"llama.block_count": 5}, r"holds blk\.5\..+, for which a llama has no place"),
        ({"llama.feed_forward_length": 255}, r"has the shape \[256, 128\], and .+ is of \[255, 128\]"),
    ],
)
def test_sizes_that_are_not_those_of_the_weights_are_refused(
    facts: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **facts)
    with pytest.raises(ModelNotFound, match=message):
        check_files(path, read_config(path))


def test_a_file_cut_short_anywhere_is_refused(llama: Path, tmp_path: Path) -> None:
    whole = llama.read_bytes()
    end = min(each.at for each in read_header(llama).tensors.values())
    cut = tmp_path / "cut.gguf"
    for length in (0, 3, 4, 11, 24, *range(25, end, 211), end, len(whole) - 33):
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelNotFound, match=r"no GGUF file|damaged or cut short, fetch it anew"):
            check_files(cut, read_config(cut))


HUGE = 1 << 62


def head(tensors: int, facts: int, rest: bytes = b"", version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, facts) + rest


def string(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def tensor(name: bytes, shape: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (head(0, 0, magic=b"GGML"), "is no GGUF file"),
        (b"", "is no GGUF file"),
        (head(0, 0, version=1), "is of version 1 of GGUF"),
        (head(0, 0, version=3 << 24), "another byte order"),
        (head(HUGE, 0), "its entries"),
        (head(0, HUGE), "its entries"),
        (head(0, 1, string(b"a", HUGE) + bytes(64)), "its characters"),
        (head(0, 1, string(b"a") + struct.pack("<IIQ", 9, 8, HUGE) + bytes(64)), "its strings"),
        (head(0, 1, string(b"a") + struct.pack("<IIQ", 9, 4, HUGE) + bytes(64)), "its values"),
        (head(0, 1, string(b"a") + struct.pack("<IIQ", 9, 9, 1) + bytes(64)), "a list of values of type 9"),
        (head(0, 1, string(b"a") + struct.pack("<I", 99) + bytes(64)), "a value of type 99"),
        (head(0, 1, string(b"\xff") + struct.pack("<II", 4, 1) + bytes(64)), "is no text"),
        (head(0, 2, 2 * (string(b"a") + struct.pack("<II", 4, 1)) + bytes(64)), "it says a twice"),
        (head(2, 0, 2 * tensor(b"a", [32]) + bytes(999)), "it has a twice"),
        (head(1, 0, tensor(b"a", [HUGE, HUGE]) + bytes(99)), "would end at byte"),
        (head(1, 0, tensor(b"a", [32], offset=HUGE) + bytes(99)), "would end at byte"),
        (head(1, 0, tensor(b"a", [0]) + bytes(99)), r"has the shape \[0\]"),
        (head(1, 0, tensor(b"a", [33], kind=8) + bytes(99)), r"has the shape \[33\], which Q8_0 does not allow"),
        (head(1, 0, tensor(b"a", [1] * 5) + bytes(99)), "has 5 dimensions"),
        (head(1, 0, tensor(b"a", [32], kind=24) + bytes(99)), "is in I8, which is not read"),
        (head(1, 0, tensor(b"a", [32], kind=999) + bytes(99)), "is in type 999, which is not read"),
        (head(0, 1, string(b"general.alignment") + struct.pack("<II", 4, 0) + bytes(99)), "its alignment is 0"),
        (head(0, 1, string(b"a") + struct.pack("<II", 4, 1) + bytes(99)), "has no general.architecture"),
        (b"version https://git-lfs.github.com/spec/v1", "git-lfs pointer"),
    ],
)
def test_a_header_that_lies_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    """Check that no count is trusted before the size of the file is known to allow it."""
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises((ModelNotFound, UnsupportedModel), match=message):
        read_config(path)


LONG = "n" * 10_000


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        *(({"llama.block_count": many}, f"says llama.block_count: {many}, and it must") for many in (10**6, 10**7)),
        *(({f"llama.{key}": 2**31}, f"says llama.{key}: 2147483648, and it must be no more than")
          for key in ("block_count", "embedding_length", "attention.head_count", "feed_forward_length")),
        ({"llama.context_length": 2**31 + 1}, "llama.context_length: 2147483649, and it must be no more than"),
        ({"llama.rope.dimension_count": 7}, "RoPE turns 7 of 32 dimensions"),
        *(({f"llama.{key}": value}, f"says llama.{key}: {value}, and it must be a number above 0")
          for key in ("rope.freq_base", "attention.layer_norm_rms_epsilon", "rope.scaling.factor")
          for value in (float("nan"), float("inf"), -1.0, *([] if "factor" in key else [0.0, True]))),
        ({"general.architecture": LONG}, "does not say what model it is"),
    ],
)  # fmt: skip
def test_what_no_model_can_have_is_refused_before_anything_is_made(
    facts: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **facts)
    before = resource.getrusage(resource.RUSAGE_SELF)
    with pytest.raises(ModelNotFound, match=message) as refused:
        check_files(path, read_config(path))
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < 1
    assert after.ru_maxrss - before.ru_maxrss < 100 << 10
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.gguf", head(200_000, 0, bytes(200_000 * 32)), "it says that it has 0 facts and 200,000 tensors"),
        ("x.gguf", head(0, 200_000, bytes(200_000 * 13)), "it says that it has 200,000 facts"),
        ("x.gguf", head(0, 1, string(b"a") + struct.pack("<IIQ", 9, 0, 3 << 20) + bytes(3 << 20)), "lists have more"),
        ("x.gguf", head(1, 0, tensor(LONG.encode(), [32]) + bytes(999)), "a name of 10,000 letters: n{80}\\."),
        ("x.gguf", head(0, 2, 2 * (string(LONG.encode()) + struct.pack("<IB", 0, 1)) + bytes(64)), "says n{80} twice"),
        ("x-00001-of-99999.gguf", head(0, 0), "is one of 99,999 files by its name"),
    ],
)
def test_counts_and_names_beyond_sense_are_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelNotFound, match=message) as refused:
        read_config(tmp_path / name)
    assert len(str(refused.value)) < 400


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for call in (lambda path: read_config(path), lambda path: load_model(path, "cpu")):
        with pytest.raises(ModelNotFound, match=r"There is no model at '.+none\.gguf'"):
            call(tmp_path / "none.gguf")


def test_weights_are_read_one_by_one(llama: Path) -> None:
    """Check that the dict for transformers holds no weights."""
    config = read_config(llama)
    weights = weights_of(llama, config, torch.bfloat16, outline(config))
    assert not any(isinstance(each, torch.Tensor) for each in weights.values())
    assert weights["model.norm.weight"][...].dtype == torch.bfloat16
