"""Several documents as one stream of tokens, and the way back from a token to its place in a document."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    import engine
    import ingest

PART = "tokens"
TOKEN_BYTES = 8  # saved of each token: its id and its place


@dataclass(frozen=True)
class Stretch:
    """The tokens of one document: positions `first` to `end` (exclusive) of the stream."""

    document_id: str
    first: int
    end: int
    characters: int


@dataclass(frozen=True)
class TextSpan:
    """Characters `start` to `end` (exclusive) of a document's text."""

    document_id: str
    start: int
    end: int


@dataclass(frozen=True)
class Stream:
    """What a reading reads. ids, starts: int64 [T]; starts are character offsets in the token's own document."""

    ids: "torch.Tensor"
    starts: "torch.Tensor"
    stretches: tuple[Stretch, ...]

    def spans(self, first: int, end: int) -> list[TextSpan]:
        """The text that tokens `first` to `end` (exclusive) stand for, one span per document they touch."""
        found = []
        for stretch in self.stretches:
            low, high = max(first, stretch.first), min(end, stretch.end)
            if low < high:
                start = int(self.starts[low])
                stop = int(self.starts[high]) if high < stretch.end else stretch.characters
                found.append(TextSpan(stretch.document_id, start, max(start, stop)))
        return found

    def between(self, document_id: str, start: int, end: int) -> range:
        """The tokens that begin in the characters `start` to `end` (exclusive) of a document."""
        stretch = next(each for each in self.stretches if each.document_id == document_id)
        starts = self.starts[stretch.first : stretch.end]
        low, high = (stretch.first + int((starts < place).sum()) for place in (start, end))
        return range(low, high)

    def tensors(self) -> "dict[str, torch.Tensor]":
        """The tensors of a saved part."""
        import torch

        return {"ids": self.ids.to(torch.int32), "starts": self.starts.to(torch.int32)}

    def meta(self) -> list[dict[str, Any]]:
        """The stretches, JSON-able."""
        return [asdict(stretch) for stretch in self.stretches]

    @classmethod
    def load(cls, tensors: "dict[str, torch.Tensor]", meta: list[dict[str, Any]]) -> "Stream":
        """The inverse of `tensors` and `meta`."""
        return cls(tensors["ids"].long(), tensors["starts"].long(), tuple(Stretch(**each) for each in meta))


def heading(title: str) -> str:
    """The line that stands before each of several documents, so that the model can tell them apart.

    It is made of the title that a document was ingested with: another that it is given later changes no reading of it.
    """
    return f"# {title}\n\n"


def compose(
    chat: "engine.Chat",
    documents: Sequence[tuple[str, "ingest.Document"]],
    on_share: Callable[[float], None] = lambda share: None,
    behind: Stream | None = None,
) -> Stream:
    """Encode documents, one after another, into one stream.

    Args:
        documents: (id, document); each gets a heading line, unless it is the only one.
        on_share: called with the share of the text that is done, now and then; what it raises ends it.
        behind: what the stream begins with, as it is.
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
        encoding = chat.encode(before + document.text, report)
        ids.append(encoding.ids.cpu().long())
        starts.append((encoding.starts.cpu().long() - len(before)).clamp(min=0))
        stretches.append(Stretch(document_id, first, first + len(encoding.ids), len(document.text)))
        first += len(encoding.ids)
        done += len(document.text)
    return Stream(torch.cat(ids), torch.cat(starts), tuple(stretches))
