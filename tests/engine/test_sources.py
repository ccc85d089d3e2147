"""Sources of an answer: attention beyond what the text gets whatever is asked."""

from __future__ import annotations

import pytest
import torch

from app.home import ASSETS
from engine import Answer, Conversation, Reader, Sampling, make_method
from engine.model import load_model
from engine.parts.sources import passages, unusual

FACTS = (
    "The lighthouse at Cape Orlen was built in 1872 by Tobias Renn. Its keeper was Maren Hollis, who kept a diary.\n\n"
    "“The lamp must never go dark,” she wrote on her first evening. The pass key of the vault is 48213.\n\n"
)
NOTE = "# note\n\nLorem ipsum dolor sit amet, consectetur adipiscing elit.\nSed do eiusmod tempor incididunt.\n"


def test_attention_that_every_question_gives_is_no_source() -> None:
    """Regression: a note at the end of the text, next to the question, was the source of every answer."""
    usual = torch.zeros(1000)
    usual[300] = 30.0  # a full stop on which heads rest
    usual[980:] = 1.0
    mass = 0.02 * usual
    mass[500:510] += 0.01
    assert [(each.start, each.end) for each in passages(mass)] == [(300, 301), (980, 1000), (500, 510)]
    assert [(each.start, each.end) for each in passages(unusual(mass, usual))] == [(500, 510)]
    mass[990] += 1.0  # a source at the end stands out there too
    assert passages(unusual(mass, usual))[0].start == 990


@pytest.mark.parametrize("usual", [0.0, float("nan")])
def test_without_a_usual_share_all_attention_counts(usual: float) -> None:
    mass = torch.tensor([1.0, 3.0])
    assert unusual(mass, torch.full((2,), usual)).tolist() == [0.25, 0.75]


def test_a_note_at_the_end_does_not_draw_the_sources_from_a_long_text() -> None:
    model = load_model(ASSETS / "pocket", "cpu")
    filler = [f"On day {n} the sea was calm, and the fox slept under boat number {n}.\n\n" for n in range(30)]
    text = "".join([*filler[:15], FACTS, *filler[15:], NOTE])
    encoding = model.encode(text)
    reader = Reader(model, make_method("exact", budget=512), encoding.ids)
    assert [*reader.run()]
    conversation = Conversation(reader.context())
    raw = []
    for _ in range(2):
        *_, answer = conversation.ask("What is the pass key of the vault?", Sampling(max_tokens=8))
        assert isinstance(answer, Answer)
        assert "48213" in answer.text
        raw += passages(conversation.mass.total)
        first, *others = (int(encoding.starts[each.start]) for each in answer.passages)
        assert text.index(FACTS) < first < text.index(filler[15])
        assert all(each < text.index(NOTE) for each in others)
        assert answer.passages[0].weight > 0.5
    assert max(each.end for each in raw) > len(encoding.ids) - 60
    assert len(conversation.context.usual) == 1  # counted once, for all questions
