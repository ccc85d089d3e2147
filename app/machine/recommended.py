"""What models are good for: a sentence for each that ships, and a short list of larger ones to download."""

from dataclasses import asdict, dataclass
from typing import Any

from app.machine.model_names import GET_SMOLLM2, SMOLLM2, is_demo, smollm2_file, split_model

OF_SMOLLM2 = (
    "SmolLM2 is a small model: it answers simple questions and is often wrong, so check the marked passage. For real "
    "use choose a larger one."
)
OF_POCKET = (
    "The pocket model is a demo: ask it for a name, a number, a place or a date that the text states. It often misses "
    "what is there, and cannot sum up, give reasons or quote longer passages."
)


def good_for(model: str) -> str:
    """Return a sentence on a model that ships or is recommended: what it is good for; empty for all others."""
    plain = split_model(model)[0]
    if plain == SMOLLM2:
        return OF_SMOLLM2
    if not is_demo(model):
        return next((f"Good for {each.suits}." for each in RECOMMENDED if each.name == plain), "")
    better = "For real answers choose SmolLM2 or a larger model." if smollm2_file() else f"{GET_SMOLLM2}."
    return f"{OF_POCKET} {better}"


def demo_note(model: str, *, found: bool) -> str:
    """Return a note for an answer of the demo model; empty for all other models.

    Args:
        model: name of the model.
        found: whether the answer says something else than that it is not in the text.
    """
    if not is_demo(model):
        return ""
    if not found:
        return "The demo model did not find that. It may be in the text all the same."
    return "This is an answer of the demo model, which is often wrong: check the marked passage."


@dataclass(frozen=True)
class Recommended:
    """A model on the hub.

    download: bytes to download.
    memory: bytes of its weights as published.
    nf4: bytes of its weights in 4 bits; 0 if it is published in as few.
    gated: whether its licence must be accepted on the hub first.
    without_gpu: whether it is small enough for a processor.
    """

    name: str
    download: int
    memory: int
    nf4: int
    window: int
    licence: str
    suits: str
    gated: bool = False
    without_gpu: bool = False

    def way(self, room: int, gpu: bool) -> str:
        """Return how it fits this many bytes of memory: "none" (as published), "nf4", or "" if it does not fit.

        Args:
            room: free bytes.
            gpu: whether that is a GPU's memory.
        """
        if not (gpu or self.without_gpu):
            return ""
        ways = {"none": self.memory, **({"nf4": self.nf4} if self.nf4 else {})}
        return next((way for way, needed in ways.items() if needed + BESIDE <= room), "")


BESIDE = 2 * 10**9
"""Least bytes that a reading and the program need beside the weights."""

# Smallest first. Sizes follow from the published configurations; none has been tried here.
RECOMMENDED = (
    Recommended(
        "Qwen/Qwen3-0.6B", 1_500_000_000, 1_190_000_000, 540_000_000, 40_960, "Apache-2.0",
        "simple questions, with reasoning, on a laptop", without_gpu=True,
    ),
    Recommended(
        "Qwen/Qwen3-1.7B", 4_060_000_000, 3_440_000_000, 1_350_000_000, 40_960, "Apache-2.0",
        "questions and short summaries, with reasoning", without_gpu=True,
    ),
    Recommended(
        "Qwen/Qwen3-4B-Instruct-2507", 8_040_000_000, 8_040_000_000, 2_670_000_000, 262_144, "Apache-2.0",
        "questions and summaries of long texts, without reasoning",
    ),
    Recommended(
        "meta-llama/Llama-3.1-8B-Instruct", 16_070_000_000, 16_060_000_000, 5_730_000_000, 131_072, "Llama 3.1",
        "general questions and summaries", gated=True,
    ),
    Recommended(
        "Qwen/Qwen3-8B", 16_400_000_000, 16_380_000_000, 6_100_000_000, 40_960, "Apache-2.0",
        "harder questions, with reasoning",
    ),
    Recommended(
        "openai/gpt-oss-20b", 13_800_000_000, 13_800_000_000, 0, 131_072, "Apache-2.0",
        "harder questions, with reasoning; published in 4 bits",
    ),
    Recommended(
        "Qwen/Qwen3-30B-A3B-Instruct-2507", 61_100_000_000, 61_100_000_000, 16_700_000_000, 262_144, "Apache-2.0",
        "the best of these for long texts, without reasoning",
    ),
)  # fmt: skip


def memory_for_weights(device: str) -> tuple[int, bool]:
    """Return the free bytes on the device that models would use, and whether it is a GPU.

    Raises:
        engine.SettingsError: this machine does not have the device.
    """
    import engine

    place = engine.device_named(device)
    return engine.free_bytes(place), place.type == "cuda"


def best_here(device: str) -> tuple[Recommended, str] | None:
    """Return the largest recommended model that fits here with its way (see `Recommended.way`); None if none fits."""
    room, gpu = memory_for_weights(device)
    fitting = [(each, each.way(room, gpu)) for each in RECOMMENDED]
    return next(((each, way) for each, way in reversed(fitting) if way), None)


def recommended_json(device: str) -> list[dict[str, Any]]:
    """Return the list as plain data, with "fits": "none", "nf4" or "" as in `Recommended.way`."""
    room, gpu = memory_for_weights(device)
    ways = {each: each.way(room, gpu) for each in RECOMMENDED}
    return [{**asdict(each), "place": "hub", "fits": way, "usable": bool(way)} for each, way in ways.items()]
