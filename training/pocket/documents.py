"""Training rows: a document with facts and a conversation about it, as token ids and loss weights.

Facts and turns are drawn first; prose fills the rest of the row. A `Recipe` describes the rows of a stage, and `build`
makes one from a `random.Random`, so that seed and step determine every row.
"""

import itertools
import random
import re
from dataclasses import dataclass, replace

import numpy as np
from transformers import PreTrainedTokenizerFast

from engine.models.chat import INSTRUCTION
from training.pocket import facts, questions
from training.pocket.facts import Fact, FactMaker, Subject
from training.pocket.prose import Prose
from training.pocket.tokenizer import ASSISTANT, BOS, END, PAD, USER

REFUSAL_WEIGHT, QUOTE_WEIGHT, LIST_WEIGHT = 0.8, 0.4, 0.3  # loss weights of answer tokens; tokens of values have 1
ABSENT = "That is not in the text."
CATALYSTS = (
    "Summarize the critical points highlighted in this section.", "Summarize this section's critical points.",
    "Highlight the critical points from this section.", "List the important points.",
)  # fmt: skip
FILLER = " The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
_QUOTE = (
    "Quote the sentence that mentions {x}.", "Quote the sentence with {x} in it.", "Which sentence mentions {x}?",
    "Give the exact sentence about {x}.", "Cite the passage that mentions {x}.",
    "Repeat the sentence in which {x} appears.",
)  # fmt: skip
_QUOTE_WORD = (
    'Quote the sentence that mentions "{x}".', 'Quote the sentence with the word "{x}".',
    "Quote the sentence that mentions {x}.",
    'Which sentence contains the word "{x}"?', 'Cite the passage that mentions "{x}".',
)  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """Settings of the rows of one kind.

    Attributes:
        length: tokens in a row.
        mode: "again" (statements repeated, loss on the second time, values above all), "chat" (questions) or "text"
            (plain prose).
        dense: share of rows without prose.
        facts: fewest and most facts in a row with prose.
        turns: most turns.
        alike: share of rows whose facts are all of one relation.
        backward: share of rows whose statements give the value before the subject, if such a wording exists.
        quotes, absent, both, lists, filler, reading: shares of turns (quotes, absent, questions for two values) or
            rows (the others).
        language: share of prose tokens that carry the plain next-token loss.
    """

    length: int
    mode: str = "chat"
    dense: float = 0.0
    facts: tuple[int, int] = (4, 10)
    turns: int = 8
    alike: float = 0.0
    backward: float = 0.0
    quotes: float = 0.0
    absent: float = 0.0
    both: float = 0.0
    lists: float = 0.0
    filler: float = 0.0
    reading: float = 0.0
    language: float = 0.0


@dataclass
class Row:
    """One training row.

    Attributes:
        ids: int64 [T].
        weights: float32 [T], loss weight of predicting ids[t]; -1 marks a plain language position, 0 none.
        document: index where the conversation begins (everything before is document).
        used: tokens that are not padding.
    """

    ids: np.ndarray
    weights: np.ndarray
    document: int
    used: int


@dataclass(frozen=True)
class Turn:
    """One question and its answer; `weight` is the loss weight of each answer token."""

    question: str
    answer: str
    weight: float = 1.0


class Builder:
    """Builds training rows.

    Args:
        tokenizer: the pocket tokenizer.
        prose: sentences to hide facts in.
        maker: relations to draw from.
        reading: question sets over real passages, or None.
        reserved: use the names kept for measuring.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        prose: Prose,
        maker: FactMaker,
        reading: "questions.Passages | None" = None,
        reserved: bool = False,
    ) -> None:
        self.tokenizer, self.prose, self.maker, self.reading, self.reserved = tokenizer, prose, maker, reading, reserved

        def special(token: str) -> int:
            return tokenizer.get_vocab()[token]

        self.bos, self.user, self.assistant, self.end, self.pad = (special(t) for t in (BOS, USER, ASSISTANT, END, PAD))
        self.system = self.encode([INSTRUCTION])[0]
        self.filler = self.encode([" " + s.strip() + "." for s in FILLER.strip().rstrip(".").split(".")])

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        return self.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []

    def present(self, rng: random.Random, recipe: Recipe, count: int) -> list[Fact]:
        """Return `count` facts for the recipe: in some rows all of one relation, in some all value first."""
        backward = rng.random() < recipe.backward
        if rng.random() < recipe.alike:
            return self.alike(rng, count, backward)
        return self.facts(rng, count, backward=backward)

    def alike(self, rng: random.Random, count: int, backward: bool = False) -> list[Fact]:
        """Return `count` facts of one relation, mostly in one wording, so that only the name tells them apart."""
        if rng.random() < 0.15:
            return facts.pairs(rng, count)
        kind = facts.make_subject(rng, self.reserved).kind
        relation = self.maker.relation(rng, kind, set())
        if backward:
            relation = facts.backward(relation)
        if rng.random() < 0.7:
            relation = replace(relation, statements=(rng.choice(relation.statements),))
        found: dict[str, Fact] = {}
        while len(found) < count:
            subject = facts.make_subject(rng, self.reserved, kind=kind)
            found[subject.name] = self.maker.fact(rng, subject, relation, self.reserved)
        return list(found.values())

    def facts(self, rng: random.Random, count: int, special: float = 0.25, backward: bool = False) -> list[Fact]:
        """Return `count` facts without contradictions, with distractors that share half a key."""
        found: list[Fact] = []
        subjects: list[Subject] = []
        taken: dict[str, set[str]] = {}
        if rng.random() < special:
            found.extend(facts.passkeys(rng) if rng.random() < 0.4 else [facts.passkey(rng)])
        if rng.random() < special * 0.6:
            found.extend(facts.pairs(rng, rng.randint(1, min(4, count))))
        while len(found) < count:
            last = found[-1] if found and found[-1].subject.kind not in ("passkey", "pair") else None
            shape = rng.random()
            if last and shape < 0.3:  # another relation of a subject already present
                subject = rng.choice(subjects)
                relation = None
            else:
                subject = facts.make_subject(rng, self.reserved, last.subject if last and shape < 0.42 else None)
                # the same relation of another subject
                relation = last.relation if last and shape < 0.6 and last.relation.subject == subject.kind else None
                if subject.name in taken:
                    continue
                subjects.append(subject)
                taken[subject.name] = set()
            if relation is None:
                try:
                    relation = self.maker.relation(rng, subject.kind, taken[subject.name])
                except facts.NothingLeft:
                    continue
            taken[subject.name].add(facts.group(relation))
            if backward:
                relation = facts.backward(relation)
            found.append(self.maker.fact(rng, subject, relation, self.reserved))
        rng.shuffle(found)
        return found

    def turns(self, rng: random.Random, recipe: Recipe, present: list[Fact], prose: range) -> list[Turn]:
        """Return at most `recipe.turns` questions, about `present` and about absent facts."""
        order = rng.sample(present, len(present))
        turns: list[Turn] = []
        count = rng.randint(max(1, recipe.turns // 2), recipe.turns)
        if recipe.lists and rng.random() < recipe.lists:
            turns.append(Turn(rng.choice(CATALYSTS), " ".join(f.statement for f in present), LIST_WEIGHT))
        previous: Fact | None = None
        while len(turns) < count and order:
            shape = rng.random()
            if shape < recipe.absent:
                turns.append(self.absent(rng, present))
                continue
            if shape < recipe.absent + recipe.quotes:
                turns.append(self.quote(rng, present, prose))
                continue
            if shape < recipe.absent + recipe.quotes + recipe.both and (turn := self.both(rng, present)):
                turns.append(turn)
                continue
            fact = order.pop()
            same = [f for f in order if previous and f.subject == previous.subject]
            if previous and same and rng.random() < 0.8:
                order.append(fact)
                fact = rng.choice(same)
                order.remove(fact)
                text = facts.followup if rng.random() < 0.75 else facts.question
                turns.append(Turn(text(rng, fact.relation, fact.subject), fact.value))
            else:
                turns.append(Turn(facts.question(rng, fact.relation, fact.subject), fact.value))
            previous = fact
        return turns

    def absent(self, rng: random.Random, present: list[Fact]) -> Turn:
        """Return a question that the document does not answer: a new name, or a known name with another relation."""
        known = [f.subject for f in present if f.subject.kind in self.maker.attributes]
        if known and rng.random() < 0.5:
            subject = rng.choice(known)
            taken = {facts.group(f.relation) for f in present if f.subject.name == subject.name}
        else:
            like = rng.choice(known) if known and rng.random() < 0.3 else None
            subject, taken = facts.make_subject(rng, self.reserved, like), set()
            if any(subject.name == f.subject.name for f in present):
                subject = facts.make_subject(rng, self.reserved)
        return Turn(facts.question(rng, self.maker.relation(rng, subject.kind, taken), subject), ABSENT, REFUSAL_WEIGHT)

    @staticmethod
    def both(rng: random.Random, present: list[Fact]) -> Turn | None:
        """Return a question for two values at once, or None if no two facts allow it."""
        asked = [
            (text, one, other)
            for one, other in itertools.permutations(present, 2)
            if one.value != other.value and (text := facts.both(rng, one, other))
        ]
        if not asked:
            return None
        text, one, other = rng.choice(asked)
        return Turn(text, f"{one.value} and {other.value}")

    def quote(self, rng: random.Random, present: list[Fact], prose: range) -> Turn:
        """Ask for a sentence by a unique clue: a fact's name or value, or a rare word of the prose."""
        if prose and rng.random() < 0.5:
            word, sentence = self.rare_word(rng, prose)
            if word:
                return Turn(rng.choice(_QUOTE_WORD).replace("{x}", word), sentence, QUOTE_WEIGHT)
        fact = rng.choice(present)
        alone = sum(fact.subject.name in f.statement for f in present) == 1
        wanted = fact.subject.name if alone and rng.random() < 0.7 else fact.value
        if sum(wanted in f.statement for f in present) > 1:
            return Turn(facts.question(rng, fact.relation, fact.subject), fact.value)
        return Turn(rng.choice(_QUOTE).replace("{x}", wanted), fact.statement, QUOTE_WEIGHT)

    def rare_word(self, rng: random.Random, prose: range) -> tuple[str, str]:
        """Return a word that occurs once in `prose`, and its sentence; ("", "") after ten failed tries."""
        whole = None
        for _ in range(10):
            sentence = self.prose.texts[rng.choice(prose)]
            if not 20 <= len(sentence) <= 200:
                continue
            rare = [w for w in re.findall(r"[A-Za-z]{5,}", sentence) if self.prose.counts.get(w.lower(), 0) <= 60]
            if rare:
                word = rng.choice(rare)
                whole = whole or " ".join(self.prose.texts[i] for i in prose).lower()
                if whole.count(word.lower()) == 1:
                    return word, sentence.strip()
        return "", ""

    def build(self, rng: random.Random, recipe: Recipe) -> Row:
        """Return one row of `recipe.length` tokens."""
        if recipe.mode == "text":
            return self._finish(recipe, *self._prose_only(rng, recipe))
        if recipe.mode == "again":
            return self._finish(recipe, *self._again(rng, recipe))
        if self.reading and rng.random() < recipe.reading:
            passage, turns = self.reading.draw(rng, recipe.length * 3)
            ids = [self.bos, *self.system, *self.encode([passage])[0]][: recipe.length // 2]
            return self._finish(recipe, ids, [0.0] * len(ids), [Turn(q, a) for q, a in turns])
        return self._chat(rng, recipe)

    def _chat(self, rng: random.Random, recipe: Recipe) -> Row:
        dense = rng.random() < recipe.dense
        filler = not dense and rng.random() < recipe.filler
        if filler:
            present = facts.passkeys(rng) if rng.random() < 0.3 else [facts.passkey(rng)]
            present += self.facts(rng, rng.randint(1, 3), 0.0) if rng.random() < 0.5 else []
        else:
            count = max(2, recipe.length // 42) if dense else rng.randint(*recipe.facts)
            present = self.present(rng, recipe, count)
        statements = self.encode([" " + f.statement for f in present])
        overhead = 1 + len(self.system) + sum(map(len, statements))
        # turns cost about 24 tokens each, quotes more; prose fills the rest
        room = 0 if dense else recipe.length - overhead - 15 * min(recipe.turns, len(present))
        prose = self.prose.run(rng, room) if not filler else range(0)
        turns = self.turns(rng, recipe, present, prose)
        spent = sum(map(len, self.encode([t.question + t.answer for t in turns]))) + 5 * len(turns)
        room = recipe.length - overhead - spent
        if filler:
            sentences = [self.filler[i % len(self.filler)] for i in range(max(0, room) // 6)]
        else:
            sentences = [self.prose.sentence(i) for i in prose] if not dense else []
        while sentences and sum(map(len, sentences)) > room:
            sentences.pop()  # a quoted sentence may go, and its turn with it
        slots = sorted(rng.randint(0, len(sentences)) for _ in present)
        stayed = {self.prose.texts[index].strip() for index in prose[: len(sentences)]}
        turns = [t for t in turns if self._can_be_answered(t, present, stayed)]
        ids, weights = [self.bos, *self.system], [0.0] * (1 + len(self.system))
        where = 0
        for index in range(len(sentences) + 1):
            while where < len(slots) and slots[where] == index:
                ids += statements[where]
                weights += [0.0] * len(statements[where])
                where += 1
            if index < len(sentences):
                ids += sentences[index]
                weights += [-1.0 if rng.random() < recipe.language else 0.0 for _ in sentences[index]]
        return self._finish(recipe, ids, weights, turns)

    @staticmethod
    def _can_be_answered(turn: Turn, present: list[Fact], prose: set[str]) -> bool:
        """Return whether a turn can still be answered: a quoted sentence must be a fact or in the remaining prose."""
        return turn.weight != QUOTE_WEIGHT or turn.answer in prose or any(turn.answer == f.statement for f in present)

    def _again(self, rng: random.Random, recipe: Recipe) -> tuple[list[int], list[float], list[Turn]]:
        count = max(2, recipe.length // 36)
        present = self.present(rng, recipe, count)
        ids, weights = [self.bos], [0.0]
        encoded = self.tokenizer(
            [" " + f.statement for f in present], add_special_tokens=False, return_offsets_mapping=True
        )
        for statement in encoded["input_ids"]:
            ids += statement
            weights += [0.0] * len(statement)
        for index in rng.sample(range(len(present)), len(present)):
            spans = [(a + 1, b + 1) for a, b in present[index].spans()]
            ids += encoded["input_ids"][index]
            for start, stop in encoded["offset_mapping"][index]:
                inside = any(start < b and stop > a for a, b in spans)
                weights.append(1.0 if inside else 0.25)  # words that can be copied teach copying too
        return ids, weights, []

    def _prose_only(self, rng: random.Random, recipe: Recipe) -> tuple[list[int], list[float], list[Turn]]:
        ids = [self.bos, *self.system]
        for index in self.prose.run(rng, recipe.length - len(ids)):
            ids += self.prose.sentence(index)
        return ids, [-1.0] * len(ids), []

    def _finish(self, recipe: Recipe, ids: list[int], weights: list[float], turns: list[Turn]) -> Row:
        """Append the turns that fit, then cut or pad to the row's length."""
        document = len(ids)
        encoded = self.encode([t.question for t in turns] + [t.answer for t in turns])
        for index, turn in enumerate(turns):
            question, answer = encoded[index], encoded[index + len(turns)]
            if len(ids) + len(question) + len(answer) + 3 > recipe.length:
                continue
            ids += [self.user, *question, self.assistant, *answer, self.end]
            asked = [-1.0] * len(question)  # questions repeat names: predicting them teaches look-up
            weights += [0.0, *asked, 0.0] + [turn.weight] * (len(answer) + 1)
        ids, weights = ids[: recipe.length], weights[: recipe.length]
        used = len(ids)
        padding = recipe.length - used
        return Row(
            np.asarray(ids + [self.pad] * padding, dtype=np.int64),
            np.asarray(weights + [0.0] * padding, dtype=np.float32),
            min(document, used),
            used,
        )
