"""Several documents as one stream of tokens, and the mapping from a token back to its place in a document."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    import engine
    import ingest

PART = "tokens"
TOKEN_BYTES = 8  # id and offset of a token


@dataclass(frozen=True)
class Stretch:
    """The tokens of one document: positions `first` to `end` (exclusive) of the stream.

    characters: length of its text.
    left_out: ranges of its text (end exclusive) without tokens.
    """

    document_id: str
    first: int
    end: int
    characters: int
    left_out: tuple[tuple[int, int], ...] = ()

    def kept(self, start: int, end: int) -> "list[TextSpan]":
        """Return the text from `start` to `end` without what is left out."""
        found = []
        for low, high in self.left_out:
            if start < high and low < end:
                if start < low:
                    found.append(TextSpan(self.document_id, start, low))
                start = high
        return [*found, TextSpan(self.document_id, start, end)] if start < end or not found else found


@dataclass(frozen=True)
class TextSpan:
    """Characters `start` to `end` (exclusive) of a document's text."""

    document_id: str
    start: int
    end: int


@dataclass(frozen=True)
class Stream:
    """The tokens of a reading.

    ids: token ids, int64 [T].
    starts: character offset of each token in its document, int64 [T].
    stretches: the tokens of each document, in order.
    """

    ids: "torch.Tensor"
    starts: "torch.Tensor"
    stretches: tuple[Stretch, ...]

    def spans(self, first: int, end: int) -> list[TextSpan]:
        """Return the text of tokens `first` to `end` (exclusive), a span for each document and piece of it."""
        found = []
        for stretch in self.stretches:
            low, high = max(first, stretch.first), min(end, stretch.end)
            if low < high:
                start = int(self.starts[low])
                stop = int(self.starts[high]) if high < stretch.end else stretch.characters
                found += stretch.kept(start, max(start, stop))
        return found

    def between(self, document_id: str, start: int, end: int) -> range:
        """Return the tokens that begin within characters `start` to `end` (exclusive) of a document."""
        stretch = next(each for each in self.stretches if each.document_id == document_id)
        starts = self.starts[stretch.first : stretch.end]
        low, high = (stretch.first + int((starts < place).sum()) for place in (start, end))
        return range(low, high)

    def until(self, end: int) -> "Stream":
        """Return the first `end` tokens, as if nothing came behind them."""
        known = [each for each in self.stretches if each.first < end]
        if known and end < known[-1].end:
            known[-1] = replace(known[-1], end=end, characters=int(self.starts[end]))
        return Stream(self.ids[:end], self.starts[:end], tuple(known))

    def tensors(self) -> "dict[str, torch.Tensor]":
        """Return the tensors to save."""
        import torch

        return {"ids": self.ids.to(torch.int32), "starts": self.starts.to(torch.int32)}

    def meta(self) -> list[dict[str, Any]]:
        """Return the stretches as plain data."""
        return [asdict(stretch) for stretch in self.stretches]

    @classmethod
    def load(cls, tensors: "dict[str, torch.Tensor]", meta: list[dict[str, Any]]) -> "Stream":
        """Return the stream that `tensors` and `meta` came from."""
        stretches = (Stretch(**{**each, "left_out": tuple(map(tuple, each.get("left_out", ())))}) for each in meta)
        return cls(tensors["ids"].long(), tensors["starts"].long(), tuple(stretches))


def heading(title: str) -> str:
    """Return the line that is put before each of several documents, so that the model can tell them apart.

    It uses the title at ingestion. Renaming a document later changes no reading.
    """
    return f"# {title}\n\n"


def read_text(document: "ingest.Document") -> str:
    """Return the text of a document without what is left out of reading."""
    text, kept, start = document.text, [], 0
    for low, high in document.left_out:
        kept.append(text[start:low])
        start = high
    return "".join([*kept, text[start:]])


def compose(
    chat: "engine.Chat",
    documents: Sequence[tuple[str, "ingest.Document"]],
    on_share: Callable[[float], None] = lambda share: None,
    behind: Stream | None = None,
) -> Stream:
    """Encode documents one after another into one stream.

    Args:
        chat: the model's tokenizer.
        documents: (id, document) pairs; each gets a heading line, unless it is the only one.
        on_share: told the share of the text that is done; its exception ends the work.
        behind: stream that the new one begins with, unchanged.
    """
    import torch

    ids, starts, stretches, first = [], [], [], 0
    if behind is not None:
        ids, starts, stretches, first = [behind.ids], [behind.starts], [*behind.stretches], len(behind.ids)
    alone = len(stretches) + len(documents) == 1
    done, total = 0, sum(len(document.text) for _, document in documents) or 1

    def report(characters: int) -> None:
        on_share(min(1.0, (done + characters) / total))

    for document_id, document in documents:
        before = "" if alone else heading(document.title)
        encoding = chat.encode(before + read_text(document), report)
        ids.append(encoding.ids.cpu().long())
        places = (encoding.starts.cpu().long() - len(before)).clamp(min=0)
        for low, high in document.left_out:  # places in the text that is read become places in the document
            places = torch.where(places >= low, places + high - low, places)
        starts.append(places)
        end = first + len(encoding.ids)
        stretches.append(Stretch(document_id, first, end, len(document.text), document.left_out))
        first += len(encoding.ids)
        done += len(document.text)
    return Stream(torch.cat(ids), torch.cat(starts), tuple(stretches))
