"""Constrained decoding of answers in JSON, by llguidance."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from engine.errors import ModelError, SettingsError, UnsupportedModel

SPACING: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""Blanks of the JSON. Where any are allowed, small models write line ends for ever."""
MOST_CLOSING = 4096
"""Tokens that complete a cut answer, at most."""
LETTER = "q"
"""A letter that JSON has only inside strings."""


def grammar_of(schema: dict[str, Any]) -> str:
    """Return the grammar of the JSON that fits a JSON schema.

    Raises:
        SettingsError: the schema is invalid, or uses a keyword that is not supported.
    """
    try:
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=SPACING)
        wrong, causes = LLMatcher.validate_grammar_with_warnings(grammar)
    except ValueError as error:
        wrong, causes = True, [str(error)]
    if wrong:
        cause = " ".join(causes[0].split()).rstrip(".")
        raise SettingsError(f"No answer can be made to fit this JSON schema: {cause}. Change or leave out that part.")
    return grammar


def grammar_tokenizer(tokenizer: PreTrainedTokenizerBase, vocabulary: int, stop_ids: Collection[int]) -> LLTokenizer:
    """Return a model's tokens as grammars need them. This takes about a second for a large vocabulary.

    Args:
        tokenizer: of the model.
        vocabulary: width of its logits.
        stop_ids: tokens that end an answer.

    Raises:
        UnsupportedModel: the tokenizer has no tokenizer.json.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise UnsupportedModel("This model's tokenizer cannot make JSON: choose a model with a tokenizer.json.")
    return from_tokenizer(tokenizer, max(vocabulary, len(tokenizer)), sorted(stop_ids))


class JsonAnswer:
    """Constrains the tokens of one answer to JSON that fits a JSON schema."""

    def __init__(self, tokenizer: LLTokenizer, schema: dict[str, Any]) -> None:
        """Begin an answer.

        Raises:
            SettingsError: see `grammar_of`.
        """
        self._matcher = LLMatcher(tokenizer, grammar_of(schema), log_level=0)
        self._ids = {each: tokenizer.tokenize_str(each)[0] for each in (LETTER, *'}],"0')}

    def masked(self, logits: Tensor) -> Tensor:
        """Return logits [vocabulary], -inf for each token that cannot come next.

        Raises:
            ModelError: the schema is too large to go on.
        """
        return logits.masked_fill(~self._allowed()[: len(logits)].to(logits.device), float("-inf"))

    def add(self, token: int) -> None:
        """Take the next token of the answer."""
        self._matcher.consume_token(token)

    def closing(self) -> list[int]:
        """Return tokens that complete the answer soon, and take them.

        Raises:
            ModelError: the schema demands too much for that.
        """
        ids: list[int] = []
        while not self._matcher.is_accepting():
            allowed = self._allowed()
            ends = '"' if allowed[self._ids[LETTER]] else '}],"0'  # a string may contain the others
            ids.append(
                next((self._ids[each] for each in ends if allowed[self._ids[each]]), int(allowed.int().argmax()))
            )
            self.add(ids[-1])
            if len(ids) > MOST_CLOSING:
                raise ModelError("The answer was cut, and cannot end soon by its JSON schema: allow more tokens.")
        return ids

    def _allowed(self) -> Tensor:
        """Return which tokens can come next, bool [tokens]."""
        allowed = torch.frombuffer(bytearray(self._matcher.compute_logit_bias()), dtype=torch.uint8) > 0
        if self._matcher.is_error():
            raise ModelError(f"The answer cannot go on by its JSON schema ({self._matcher.get_error()}): simplify it.")
        return allowed
