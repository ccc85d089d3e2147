"""The list of models to fetch: what it says is true, and each machine gets the best that fits."""

import pytest

from app.machine.gguf_names import split_tag
from app.machine.good_for import good_for
from app.machine.local_models import LocalModel
from app.machine.mirror import ON_MIRROR
from app.machine.pace import REACHED, TELLING
from app.machine.recommended import (
    BESIDE,
    NOVEL_TOKENS,
    QWEN25_1B5,
    QWEN35_4B,
    RECOMMENDED,
    ROOMS,
    Recommended,
    choices,
    recommended_json,
)
from app.service import Service
from app.web.model_field import hub_choices
from engine import Rates
from engine.models.architectures import ARCHITECTURES
from tests.app.helpers import add_context, add_document

GB = 10**9


def test_every_model_can_be_opened_as_gguf() -> None:
    opens = {row.gguf.name for row in ARCHITECTURES.values() if row.gguf}
    assert {each.architecture for each in RECOMMENDED} <= opens


@pytest.mark.parametrize("model", RECOMMENDED, ids=lambda model: model.title)
def test_every_row_is_possible(model: Recommended) -> None:
    assert split_tag(model.name)[1], "one file, not a whole repository"
    assert 0.25 <= 8 * model.download / model.parameters / 10 <= 0.75, "four to six bits a weight"
    assert model.licence in ("Apache-2.0", "MIT")
    assert model.token_bytes % 1024 == 0
    assert good_for(model.name).startswith("Good for ")


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: f"{'gpu' if room.gpu else 'ram'}{room.memory}")
def test_both_models_of_a_room_fit_it_in_4_bits(room) -> None:
    for model in (room.first, room.other):
        novel = 0 if room.gpu else NOVEL_TOKENS * model.token_bytes  # beside a GPU it lies in host memory
        assert model.download + min(novel, BESIDE) <= room.memory * GB
    assert room.first != room.other
    if not room.gpu:  # else a novel would take days
        assert room.first.parameters <= (9e9 if room.memory >= 32 else 4e9)


@pytest.mark.parametrize("form", ["int4", "blocks", "none"])
def test_the_memory_decides_which_is_the_best(form: str) -> None:
    for room in ROOMS:
        found = choices(int(room.memory * GB * 0.95), room.memory * GB, form, gpu=room.gpu)
        assert all(each.memory(form) + BESIDE <= room.memory * GB for each in found)
        if room.first.memory(form) + BESIDE <= room.memory * GB:
            assert found[0] == room.first
    # Of a large machine whose memory is taken, only small ones are left; of a small one, the smallest.
    taken = choices(64 * GB, 6 * GB, form, gpu=False)
    assert all(each.memory(form) + BESIDE <= 6 * GB for each in taken)
    assert taken != choices(64 * GB, 60 * GB, form, gpu=False)
    assert set(choices(4 * GB, 4 * GB, form, gpu=False)) <= {RECOMMENDED[0]}
    assert choices(16 * GB, 2 * GB, form, gpu=False) == []


def test_a_file_that_is_unpacked_takes_the_memory_of_its_weights() -> None:
    assert QWEN35_4B.memory("none") == 8 * GB
    assert QWEN35_4B not in choices(17 * GB, 9 * GB, "none", gpu=False)


def test_a_file_that_stays_in_its_blocks_takes_little_more_than_its_bytes() -> None:
    assert choices(17 * GB, 9 * GB, "blocks", gpu=False)[0] == QWEN35_4B
    assert abs(QWEN25_1B5.memory("blocks") / 1_345_501_184 - 1) < 0.05  # bytes that its file takes


def test_the_time_of_a_reading_follows_from_the_last_one_or_from_the_products(service: Service) -> None:
    """The page knew how long the last reading took, and `stockpot models` did not: 8 hours and 46 minutes."""
    rates, small = Rates(1e11, 1e10, 1e10, 1e11, 1e10), RECOMMENDED[0]

    def told() -> dict[str, float]:
        listed = recommended_json("cpu", rates, service.store.contexts.all())
        return {each["name"]: each["novel_seconds"] for each in listed}

    products = {each.name: pytest.approx(2 * each.parameters * NOVEL_TOKENS / (REACHED * 1e11)) for each in RECOMMENDED}
    for tokens, known in ((TELLING - 1, False), (TELLING, True)):
        row = add_context(service, add_document(service, "Kim"), model=f"{small.name}:int8", tokens=tokens)
        service.store.contexts.update(row.id, tokens_read=tokens, seconds=tokens / 5)
        assert told() == products | ({small.name: pytest.approx(NOVEL_TOKENS / 5)} if known else {})


def test_a_file_is_known_by_its_name_wherever_it_lies() -> None:
    model = next(each for each in RECOMMENDED if each.name == ON_MIRROR.name)
    assert model.is_named(f"/somewhere/models/{ON_MIRROR.file}")
    assert model.is_named("Qwen2.5-Coder-1.5B-Instruct-Q4_K_M")
    assert not model.is_named("qwen2.5-coder-1.5b-instruct-q8_0")
    assert model.download == ON_MIRROR.bytes


def test_the_page_offers_what_is_not_here() -> None:
    first, second = RECOMMENDED[:2]
    offered = hub_choices(RECOMMENDED[:2], [LocalModel(f"/models/{split_tag(first.name)[0]}", "home")])
    assert [name for _, name in offered] == [first.name, second.name]
    stem = f"{second.name.partition('/')[2].replace('-GGUF:', '-')}"
    offered = hub_choices(RECOMMENDED[:2], [LocalModel(stem, "cache")])
    assert [name for _, name in offered] == [first.name]
    assert offered[0][0].startswith(f"{first.title} · ")
    assert f"Good for {first.suits}." in offered[0][0]
