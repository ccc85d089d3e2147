"""Training rows: fixed by the seed, true to their documents, without held-out words."""

import itertools
import random
import re

import pytest

from training.pocket import facts, relations, verbs, wordings, words
from training.pocket.documents import ABSENT, CATALYSTS, Builder, Recipe
from training.pocket.facts import FactMaker
from training.pocket.ladder import ladder
from training.pocket.prepare import Materials

CHAT = Recipe(512, "chat", facts=(3, 6), quotes=0.2, absent=0.2, lists=0.2, filler=0.1, language=0.2)


def _text(builder: Builder, row) -> str:
    return builder.tokenizer.decode(row.ids[: row.used])


def _turns(text: str) -> tuple[str, list[tuple[str, str]]]:
    document, *rest = text.split("<|user|>")
    turns = []
    for part in rest:
        question, answer = part.split("<|assistant|>")
        turns.append((question.strip(), answer.removesuffix("<|end|>").strip()))
    return document, turns


def test_rows_are_fixed_by_the_seed(materials: Materials) -> None:
    builder = materials.builder()
    first, again, other = (builder.build(random.Random(seed), CHAT) for seed in (7, 7, 8))
    assert (first.ids == again.ids).all()
    assert (first.weights == again.weights).all()
    assert (first.ids != other.ids).any()


def test_every_answer_is_in_its_document(materials: Materials) -> None:
    builder = materials.builder()
    asked = 0
    for seed in range(150):
        document, turns = _turns(_text(builder, builder.build(random.Random(seed), CHAT)))
        for question, answer in turns:
            asked += 1
            if question in CATALYSTS:
                assert all(sentence in document for sentence in answer.split(". ")[:1])
            else:
                parts = [answer] if answer.lower() in document.lower() else answer.split(" and ")
                assert answer == ABSENT or all(part.lower() in document.lower() for part in parts), (question, answer)
    assert asked > 400


def test_backward_rows_give_the_value_before_the_subject(materials: Materials) -> None:
    builder = materials.builder()
    first = []
    for recipe in (Recipe(192, "chat", dense=1.0), Recipe(192, "chat", dense=1.0, backward=1.0)):
        present = [f for seed in range(60) for f in builder.present(random.Random(seed), recipe, 6)]
        named = [f for f in present if f.subject.kind not in ("passkey", "pair")]
        able = [f for f in named if any(w.index("{v}") < w.index("{s}") for w in f.relation.statements)]
        low = [(f.statement.lower(), f) for f in able]
        first.append([text.find(f.value.lower()) < text.find(f.subject.name.lower()) for text, f in low])
    plain, backward = first
    assert all(backward)
    assert sum(plain) / len(plain) < 0.6
    assert len(backward) > 200


def test_a_question_for_two_values_is_answered_in_its_order(materials: Materials) -> None:
    builder, kinds = materials.builder(), set()
    for seed in range(300):
        present = builder.facts(random.Random(seed), 7)
        turn = builder.both(random.Random(seed), present)
        if turn is None:
            continue
        one, other = next(
            p for p in itertools.permutations(present, 2) if turn.answer == f"{p[0].value} and {p[1].value}"
        )
        assert one.subject == other.subject or one.relation.key == other.relation.key or one.subject.kind == "passkey"
        if one.subject.kind == "passkey":
            assert (one.subject.name, other.subject.name) == ("the first pass key", "the second pass key")
        elif one.subject != other.subject:
            assert turn.question.index(one.subject.name[1:]) < turn.question.index(other.subject.name[1:])
        kinds.add((one.subject.kind == "passkey", one.subject == other.subject))
    assert kinds == {(True, False), (False, True), (False, False)}


def test_keys_may_differ_in_their_last_digits_only(materials: Materials) -> None:
    alike = 0
    for seed in range(40):
        keys = [fact.subject.name for fact in facts.pairs(random.Random(seed), 4)]
        assert len(set(keys)) == 4
        alike += len({key[:-4] for key in keys}) == 1
    assert 10 < alike < 30


def test_an_absent_thing_is_absent(materials: Materials) -> None:
    builder = materials.builder()
    for seed in range(200):
        rng = random.Random(seed)
        present = builder.facts(rng, 5)
        turn = builder.absent(rng, present)
        for fact in present:  # no stated fact of the same relation and subject
            assert turn.question not in {
                facts.capital(q.replace("{s}", fact.subject.name)) for q in fact.relation.questions
            }


def test_loss_falls_on_answers_only(materials: Materials) -> None:
    builder = materials.builder()
    row = builder.build(random.Random(3), CHAT)
    chosen = row.ids[row.weights > 0]
    assert (row.weights[: row.document] <= 0).all()
    assert (chosen == builder.end).sum() == (row.ids == builder.end).sum() > 0
    assert builder.user not in chosen
    assert builder.assistant not in chosen


def test_again_puts_most_loss_on_values(materials: Materials) -> None:
    builder = materials.builder()
    row = builder.build(random.Random(5), Recipe(400, "again"))
    text = _text(builder, row)
    values = builder.tokenizer.decode(row.ids[row.weights == 1.0])
    repeated = builder.tokenizer.decode(row.ids[row.weights > 0]).strip()
    assert repeated in text
    assert values
    assert len(values) < len(repeated) / 2
    assert all(text.count(sentence) >= 2 for sentence in repeated.split(". ")[:-1])


def test_held_out_relations_never_appear_in_training(materials: Materials) -> None:
    builder = materials.builder()
    banned = [noun for _, noun, _ in relations.attributes(held_out=True)]
    unseen = [t.split("{")[0] for t in wordings.UNSEEN_QUESTIONS]
    for stage in ladder():
        for mix in stage.mixes:
            for seed in range(12):
                text = _text(builder, builder.build(random.Random(seed), mix.recipe))
                assert not [noun for noun in banned if f" {noun} of " in text or f"'s {noun}" in text]
                assert not [start for start in unseen if start in text]


def test_shares_of_relations_do_not_overlap() -> None:
    seen = {(s, n) for s, n, _ in relations.attributes(False)}
    assert not seen & {(s, n) for s, n, _ in relations.attributes(True)}
    assert not {v.key for v in verbs.VERBS} & {v.key for v in verbs.HELD_OUT_VERBS}
    assert len(seen) + len(verbs.VERBS) > 300


@pytest.mark.parametrize(
    ("taught", "kept"),
    [(wordings.STATEMENTS, wordings.UNSEEN_STATEMENTS), (wordings.QUESTIONS, wordings.UNSEEN_QUESTIONS)],
    ids=["statements", "questions"],
)
def test_what_makes_an_unseen_wording_is_in_no_taught_one(taught: tuple[str, ...], kept: tuple[str, ...]) -> None:
    for wording in kept:
        longest = max(re.split(r"\{\w\}", wording), key=len)
        assert not [text for text in taught if longest in text]


def test_every_wording_has_its_parts() -> None:
    for text in (*wordings.STATEMENTS, *wordings.UNSEEN_STATEMENTS):
        assert text.count("{s}") == text.count("{v}") == text.count("{a}") == 1, text
    for text in (*wordings.QUESTIONS, *wordings.UNSEEN_QUESTIONS):
        assert text.count("{s}") == text.count("{a}") == 1, text
    for relation in (*verbs.VERBS, *verbs.HELD_OUT_VERBS):
        assert all(text.count("{s}") == text.count("{v}") == 1 for text in relation.statements), relation
        assert all(text.count("{s}") == 1 for text in relation.questions), relation


@pytest.mark.parametrize("reserved", [False, True], ids=["training", "measuring"])
def test_invented_names_keep_to_their_share(reserved: bool) -> None:
    rng = random.Random(1)
    assert all(words.is_reserved(words.invented(rng, reserved)) == reserved for _ in range(300))


def test_facts_hold_their_value_and_do_not_contradict(materials: Materials) -> None:
    builder = Builder(materials.tokenizer, materials.held_out, FactMaker(materials.nouns, held_out=True), reserved=True)
    for seed in range(100):
        present = builder.facts(random.Random(seed), 8)
        assert all(fact.spans() for fact in present)
        keys = [(fact.subject.name, facts.group(fact.relation)) for fact in present if fact.subject.kind != "pair"]
        assert len(keys) == len(set(keys))
