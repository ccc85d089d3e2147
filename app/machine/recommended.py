"""A short list of models to download, and the best of them for a machine's memory."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.machine.gguf_names import split_tag
from app.machine.pace import reading_seconds

if TYPE_CHECKING:
    import engine
    from sessions import ContextRow

LOOKED_AT = "2026-11-28"
"""Day when the list was last compared with the models that there are."""
NOVEL_TOKENS = 133_000
"""Tokens of a novel of 100,000 words."""
BESIDE = 2 * 10**9
"""Least bytes that a reading and the program need beside the weights."""
IN_BLOCKS, IN_BLOCKS_APART = 1.4, 1.2
"""Bytes in memory for each byte of a file whose weights stay in its blocks: at most, and with a head apart from the
embeddings, which are looked up in the file."""
ROUGHLY = 0.9
"""Share of a machine's nominal memory that its system reports."""


@dataclass(frozen=True)
class Recommended:
    """A GGUF file on the hub, in 4 bits a weight. All are free to fetch without an account.

    name: hub id and tag of the file: "owner/name:Q4_K_M".
    title: name for people.
    original: hub id of the model as published, in 16 bits.
    architecture: `general.architecture` of the file.
    download: bytes of the file, as of LOOKED_AT.
    parameters: weights in all, and those that each token is multiplied with.
    token_bytes: bytes of a token's keys and values.
    window: tokens that it was trained for.
    suits: its use, in words that follow "good for".
    in_blocks: bytes in memory for each byte of the file, if its weights stay in their blocks.
    """

    name: str
    title: str
    original: str
    architecture: str
    download: int
    parameters: float
    token_bytes: int
    window: int
    licence: str
    suits: str
    in_blocks: float = IN_BLOCKS

    @property
    def original_bytes(self) -> int:
        """Bytes of the model as published."""
        return int(2 * self.parameters)

    def is_named(self, name: str) -> bool:
        """Return whether a name, or the path of a file, is that of this model in 4 bits."""
        repository, tag = split_tag(self.name)
        stem = f"{repository.partition('/')[2].removesuffix('-GGUF')}-{tag}".lower()
        return name == self.name or Path(name).name.lower().removesuffix(".gguf") == stem

    def memory(self, form: str) -> int:
        """Return the bytes of its weights in memory. form: see `form_in`."""
        return {
            "int4": self.download,
            "blocks": int(self.in_blocks * self.download),
            "none": self.original_bytes,
        }[form]


@dataclass(frozen=True)
class Room:
    """The memory of a machine, and the models for it.

    gpu: whether it is that of a GPU.
    memory: gigabytes.
    """

    gpu: bool
    memory: int
    first: Recommended
    other: Recommended


QWEN25_1B5 = Recommended(
    "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF:Q4_K_M", "Qwen2.5 Coder 1.5B", "Qwen/Qwen2.5-Coder-1.5B-Instruct", "qwen2",
    1_117_320_768, 1.54e9, 28_672, 32_768, "Apache-2.0", "simple questions about texts and programs", IN_BLOCKS_APART,
)  # fmt: skip
QWEN35_2B = Recommended(
    "unsloth/Qwen3.5-2B-GGUF:Q4_K_M", "Qwen3.5 2B", "Qwen/Qwen3.5-2B", "qwen35",
    1_280_835_840, 2e9, 12_288, 262_144, "Apache-2.0", "questions and short summaries, with reasoning",
)  # fmt: skip
GRANITE_3B = Recommended(
    "ibm-granite/granite-4.1-3b-GGUF:Q4_K_M", "Granite 4.1 3B", "ibm-granite/granite-4.1-3b", "granite",
    2_099_501_664, 3e9, 81_920, 131_072, "Apache-2.0", "questions and summaries of long texts, without reasoning",
)  # fmt: skip
QWEN35_4B = Recommended(
    "unsloth/Qwen3.5-4B-GGUF:Q4_K_M", "Qwen3.5 4B", "Qwen/Qwen3.5-4B", "qwen35",
    2_740_937_888, 4e9, 32_768, 262_144, "Apache-2.0", "questions and summaries of long texts, with reasoning",
)  # fmt: skip
QWEN35_9B = Recommended(
    "unsloth/Qwen3.5-9B-GGUF:Q4_K_M", "Qwen3.5 9B", "Qwen/Qwen3.5-9B", "qwen35",
    5_680_522_464, 9e9, 32_768, 262_144, "Apache-2.0", "harder questions, with reasoning",
)  # fmt: skip
QWEN36_27B = Recommended(
    "unsloth/Qwen3.6-27B-GGUF:Q4_K_M", "Qwen3.6 27B", "Qwen/Qwen3.6-27B", "qwen35",
    16_817_244_384, 27e9, 65_536, 262_144, "Apache-2.0", "harder questions, with reasoning",
)  # fmt: skip

ROOMS = (
    Room(gpu=False, memory=8, first=QWEN35_2B, other=QWEN25_1B5),
    Room(gpu=False, memory=16, first=QWEN35_4B, other=GRANITE_3B),
    Room(gpu=False, memory=32, first=QWEN35_9B, other=QWEN35_4B),
    Room(gpu=True, memory=8, first=QWEN35_4B, other=QWEN35_2B),
    Room(gpu=True, memory=12, first=QWEN35_9B, other=QWEN35_4B),
    Room(gpu=True, memory=16, first=QWEN35_9B, other=GRANITE_3B),
    Room(gpu=True, memory=24, first=QWEN36_27B, other=QWEN35_9B),
)
"""From the least memory to the most, without a GPU and with one."""

RECOMMENDED = tuple(
    sorted({each for room in ROOMS for each in (room.first, room.other)}, key=lambda each: each.download)
)
"""All of them, smallest first."""


def recommended(name: str) -> Recommended | None:
    """Return the recommended model with a name; None if there is none."""
    return next((each for each in RECOMMENDED if each.is_named(name)), None)


def choices(total: int, room: int, form: str, *, gpu: bool) -> list[Recommended]:
    """Return the models for a machine, the best one first.

    Args:
        total: bytes of memory of the machine, or of its GPU.
        room: those of them that are free.
        form: see `form_in`.
        gpu: whether it is a GPU's.
    """
    rooms = [each for each in reversed(ROOMS) if each.gpu == gpu and each.memory * 10**9 * ROUGHLY <= total]
    found = [each for of in rooms for each in (of.first, of.other)] or [RECOMMENDED[0]]
    return [each for each in dict.fromkeys(found) if each.memory(form) + BESIDE <= room]


def memory_for_weights(device: str) -> tuple[int, bool]:
    """Return the free bytes on the device that models would use, and whether it is a GPU.

    Raises:
        engine.SettingsError: this machine does not have the device.
    """
    import engine

    place = engine.device_named(device)
    return engine.free_bytes(place), place.type == "cuda"


def choices_here(device: str) -> list[Recommended]:
    """Return the recommended models for this machine, the best one first.

    They are used in the form that `form_in` names.
    """
    room, gpu = memory_for_weights(device)
    return choices(total_memory(device), room, form_in(device), gpu=gpu)


def total_memory(device: str) -> int:
    """Return the bytes of the machine's memory, or of its GPU's if models use that."""
    import psutil
    import torch

    gpu = memory_for_weights(device)[1]
    return int(torch.cuda.get_device_properties(0).total_memory if gpu else psutil.virtual_memory().total)


def form_in(device: str) -> str:
    """Return the form of the weights of a recommended GGUF file in memory, as this machine uses it.

    It is "int4" on a GPU, "none" (bfloat16) on a processor that is fast in bfloat16, and "blocks" on others.
    """
    from transformers import PretrainedConfig

    import engine
    from engine.models.placement import WIDE
    from engine.models.sizes import form_on

    place = engine.device_named(device)
    dtype = engine.dtype_on(place, PretrainedConfig.from_dict({"hidden_size": WIDE}))
    return "int4" if place.type == "cuda" else form_on(place, dtype, "none", in_gguf=True)


def recommended_json(device: str, rates: "engine.Rates", readings: Sequence["ContextRow"] = ()) -> list[dict[str, Any]]:
    """Return the list as plain data, models for this machine first.

    Args:
        device: auto, cpu or cuda.
        rates: the measured rates of this machine.
        readings: earlier readings here, the latest first.

    Returns:
        The fields of each, with "usable" (whether it is for this machine) and "novel_seconds" (to read a novel).
    """
    here = choices_here(device)
    return [
        {
            **asdict(each),
            "original_bytes": each.original_bytes,
            "novel_seconds": reading_seconds(NOVEL_TOKENS, each.parameters, rates, readings, each.is_named),
            "place": "hub",
            "usable": each in here,
        }
        for each in sorted(RECOMMENDED, key=lambda each: here.index(each) if each in here else len(here))
    ]
