"""Texts cut into tokens by Stockpot and by llama.cpp, under every name of a way to cut that GGUF files may have.

    python -m benchmarks.gguf_tokens --model FILE.gguf --llama-cpp-python PATH_TO_PYTHON

FILE has a byte-level vocabulary. It is asked as it is, and then as files of the same vocabulary that name another way
to cut, and as a vocabulary of SentencePiece with some of its words. Half of the texts are stretches of books, half are
mixed from what tokenizers disagree about. A marker in a text is text.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from gguf import GGUFReader, GGUFValueType, GGUFWriter
from transformers import PreTrainedConfig
from transformers.convert_slow_tokenizer import bytes_to_unicode

from benchmarks import options as shared
from benchmarks.llama_cpp import add_interpreter, run_script
from benchmarks.report import publish
from engine import load_chat, read_config
from engine.models.gguf.tokens import KNOWN, OWN, SENTENCEPIECE
from training.pocket.prose import read_books

TEXTS = 1000
MOST_LETTERS = 300
ARCHITECTURE = "general.architecture"
WORDS_OF_PIECES = 30_000
Facts = dict[str, tuple[Any, GGUFValueType, GGUFValueType | None]]
BLANKS = (" ", "  ", "   ", "\t", "\n", "\n\n", " \n", "\r\n", "\xa0", "\u3000", "\u2009", "\u200b", "\ufeff", "\0")
WORDS = """
a The THE don't DON'T we'll ÉTÉ naïve Straße camelCase snake_case HTTPServer 1 12 123 1234 12345678 3.14 1,000 ½ ² Ⅳ ٣
१२ 2026-11-29 . ... !? — … “ ” ' '' ` ``` -> => != // /* \\n $ € § 一 漢字 かな カナ 한국어 ไทย
हिन्दी עברית العربية Ελληνικά Русский ﬁ e\u0301 q\u0307 🙂 👩\u200d👩\u200d👧 🇩🇪 👍🏽
<|im_start|> <|endoftext|> </think> <s> <unk> https://a.b/c?d=1
"""
ASKED = """
import json, sys
from llama_cpp import Llama
asked, said = json.load(sys.stdin), []
try:
    model = Llama(asked["model"], vocab_only=True, verbose=False)
except ValueError:
    sys.exit(print("null"))
print(json.dumps([model.tokenize(text.encode(), add_bos=False, special=False) for text in asked["texts"]]))
"""


def texts_of(folder: Path, seed: int) -> list[str]:
    """Return the texts: stretches of the books in a folder, and mixtures."""
    draw = random.Random(seed)
    books = [text for _, text in read_books(folder)]
    parts, texts = [*WORDS.split(), *BLANKS * 3], []
    for _ in range(TEXTS // 2):
        book, letters = draw.choice(books), draw.randint(1, MOST_LETTERS)
        begin = draw.randrange(max(1, len(book) - letters))
        texts += [book[begin : begin + letters], "".join(draw.choices(parts, k=draw.randint(1, 24)))]
    return texts


def facts_of(file: Path) -> Facts:
    """Return the facts of a file: value, type and type of parts, by name."""
    fields = [each for each in GGUFReader(file).fields.values() if not each.name.startswith("GGUF.")]
    return {each.name: (each.contents(), each.types[0], each.types[1] if each.types[1:] else None) for each in fields}


def cut_as(facts: Facts, cuts: str) -> Facts:
    """Return the facts with another way to cut, or with the same words as a vocabulary of SentencePiece."""
    if cuts != SENTENCEPIECE:
        return facts | {OWN + "pre": (cuts, GGUFValueType.STRING, None)}
    letters = {sign: byte for byte, sign in bytes_to_unicode().items()}  # type: ignore[no-untyped-call]
    spelled = [
        bytes(letters[sign] for sign in token) for token in facts[OWN + "tokens"][0] if letters.keys() >= set(token)
    ]
    words = [word.decode(errors="ignore").replace(" ", "▁").strip("\0") for word in spelled[:WORDS_OF_PIECES]]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *dict.fromkeys(filter(None, words))]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(pieces) - 259)]
    numbers = {f"{name}_token_id": number for number, name in enumerate(("unknown", "bos", "eos", "padding"))}
    kept = {name: fact for name, fact in facts.items() if not name.startswith(OWN)}
    own = {
        "model": (SENTENCEPIECE, GGUFValueType.STRING, None),
        "tokens": (pieces, GGUFValueType.ARRAY, GGUFValueType.STRING),
        "scores": ([-float(rank) for rank in range(len(pieces))], GGUFValueType.ARRAY, GGUFValueType.FLOAT32),
        "token_type": (kinds, GGUFValueType.ARRAY, GGUFValueType.INT32),
        **{name: (number, GGUFValueType.UINT32, None) for name, number in numbers.items()},
    }
    return kept | {OWN + name: fact for name, fact in own.items()}


def vocabulary(facts: Facts, file: Path) -> Path:
    """Write a file of facts and no tensors; return it."""
    writer = GGUFWriter(file, facts[ARCHITECTURE][0])
    for name, (value, kind, part) in facts.items():
        if name != ARCHITECTURE:
            writer.add_key_value(name, value, kind, part)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return file


def row(name: str, config: PreTrainedConfig, file: Path, texts: list[str], python: Path) -> dict[str, Any] | None:
    """Return how many texts both cut alike, and the first that they do not; None if llama.cpp does not know the way."""
    theirs = json.loads(run_script(python, ASKED, {"model": str(file), "texts": texts}))
    if theirs is None:
        return None
    chat = load_chat(file, config)
    ours = [chat.encode(text).ids.tolist() for text in texts]
    apart = [text for text, one, other in zip(texts, ours, theirs, strict=True) if one != other]
    return {"cuts": name, "texts": len(texts), "alike": len(texts) - len(apart), "apart": apart[:3]}


def main() -> int:
    """Print and write how often both cut alike."""
    parser = shared.parser(__doc__.split("\n")[0])
    add_interpreter(parser)
    chosen = parser.parse_args()
    file, python = Path(chosen.model), chosen.llama_cpp_python
    texts, facts, config = texts_of(chosen.data, chosen.seed), facts_of(file), read_config(file)
    rows = [row(file.name, config, file, texts, python)]
    with tempfile.TemporaryDirectory() as folder:
        for name in [SENTENCEPIECE, *sorted(KNOWN)]:
            made = vocabulary(cut_as(facts, name), Path(folder) / f"{name}.gguf")
            rows.append(row(name, config, made, texts, python))
    publish("gguf-tokens", [each for each in rows if each], chosen.out, chosen.json, model=file.name)
    return 0


if __name__ == "__main__":
    shared.run(main)
