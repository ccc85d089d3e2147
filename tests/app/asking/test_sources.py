"""Map positions of tokens to places in documents."""

from pathlib import Path

import torch

from app.asking.quotes import QUOTE_CHARACTERS
from app.asking.sources import MOST_CITED, Citation, check_quotations, find_sources, narrowed, with_citations
from app.reading.document_cache import DocumentCache
from app.reading.token_stream import TOKEN_BYTES, Stream, Stretch, compose
from engine import Encoding, Passage, Sentence
from ingest import Document, Page, PageQuality, ingest

SAMPLE = ingest(Path(__file__).parents[3] / "assets" / "sample" / "three-adventures-and-a-register.html")

FIRST = Document(
    "First",
    "pdf",
    "1" * 64,
    (
        Page(1, "page 1", "Alpha is here. Beta is there.", PageQuality(29, "text")),
        Page(2, "page 2", "Gamma sings. Delta dances.", PageQuality(26, "text")),
    ),
)
SECOND = Document("Second", "pdf", "2" * 64, (Page(1, "page 1", "Epsilon waits.", PageQuality(14, "text")),))
LIBRARY = DocumentCache({"d-first": FIRST, "d-second": SECOND}.__getitem__)


class Letters:
    """Encodes each character as one token."""

    def encode(self, text: str, on_piece: object = None) -> Encoding:
        return Encoding(torch.tensor([ord(letter) for letter in text]), torch.arange(len(text)))


def stream() -> Stream:
    return compose(Letters(), [("d-first", FIRST), ("d-second", SECOND)])  # type: ignore[arg-type]


def read_back(words: str) -> tuple[int, int]:
    """Return the token positions of `words` in the stream."""
    text = "".join(chr(token) for token in stream().ids.tolist())
    return text.index(words), text.index(words) + len(words)


def test_several_documents_are_one_stream_with_headings() -> None:
    text = "".join(chr(token) for token in stream().ids.tolist())
    assert text == f"# First\n\n{FIRST.text}# Second\n\n{SECOND.text}"
    at = text.index("Second")
    assert [stream().spans(first, first + 1)[0].document_id for first in (0, at)] == ["d-first", "d-second"]


def test_a_single_document_has_no_heading() -> None:
    alone = compose(Letters(), [("d-first", FIRST)])  # type: ignore[arg-type]
    assert "".join(chr(token) for token in alone.ids.tolist()) == FIRST.text


def test_a_sentence_that_is_too_long_to_show_is_cut_and_says_so() -> None:
    long = f"The list begins, {'and it goes on, ' * 99}and it ends."
    document = Document("Long", "pdf", "3" * 64, (Page(1, "page 1", long, PageQuality(len(long), "text")),))
    cache, text = DocumentCache({"d-long": document}.__getitem__), compose(Letters(), [("d-long", document)])  # type: ignore[arg-type]
    near, far = (find_sources([Passage(at, at + 4, 0.5)], text, cache)[0] for at in (0, len(long) - 8))
    assert near.quote.startswith("The list")
    assert near.quote.endswith("and it goes on,…")
    assert far.quote.startswith("…and it goes on")
    assert far.quote.endswith("and it ends.")
    assert long[near.start : near.end] == near.quote.removesuffix("…")


def test_a_stream_survives_saving() -> None:
    saved = stream()
    loaded = Stream.load(saved.tensors(), saved.meta())
    assert torch.equal(loaded.ids, saved.ids)
    assert torch.equal(loaded.starts, saved.starts)
    assert loaded.stretches == saved.stretches
    assert sum(tensor.nbytes for tensor in saved.tensors().values()) == TOKEN_BYTES * len(saved.ids)


def test_a_passage_becomes_the_sentence_on_its_page() -> None:
    sources = find_sources([Passage(*read_back("sings"), 0.5), Passage(*read_back("waits"), 0.3)], stream(), LIBRARY)
    assert [(each.document, each.page, each.quote) for each in sources] == [
        ("d-first", 2, "Gamma sings."),
        ("d-second", 1, "Epsilon waits."),
    ]
    first = sources[0]
    assert FIRST.text[first.start : first.end] == first.quote


def test_passages_in_one_sentence_are_one_source() -> None:
    sources = find_sources([Passage(*read_back("Gamma"), 0.2), Passage(*read_back("sings"), 0.5)], stream(), LIBRARY)
    assert [(each.quote, round(each.weight, 6)) for each in sources] == [("Gamma sings.", 0.7)]


def test_sources_of_a_book_are_whole_sentences() -> None:
    """Quotes began and ended in the middle of sentences, at the edges of the attended tokens."""
    whole = compose(Letters(), [("d-sample", SAMPLE)])  # type: ignore[arg-type]
    document_cache = DocumentCache({"d-sample": SAMPLE}.__getitem__)
    for start in range(1_000, len(SAMPLE.text) - 200, 977):
        (source,) = find_sources([Passage(start, start + 190, 1.0)], whole, document_cache)
        before, behind = SAMPLE.text[: source.start], SAMPLE.text[source.end :]
        assert source.quote == SAMPLE.text[source.start : source.end] == source.quote.strip()
        assert max(start, source.start) < min(start + 190, source.end)
        assert len(source.quote) <= QUOTE_CHARACTERS
        assert before.endswith("\n\n") or before.rstrip(" ").rstrip("”’)")[-1] in ".!?"
        assert behind.startswith("\n\n") or source.quote.rstrip("”’)")[-1] in ".!?"
        assert not behind[:2].strip().islower()  # “Who?” he cried.


def test_passages_that_share_a_sentence_are_one_source() -> None:
    """The same sentence was listed in two places."""
    passages = [
        Passage(read_back("Gamma")[0], read_back("Delta dances")[1], 0.5),
        Passage(*read_back("Alpha is here"), 0.2),
        Passage(*read_back("Delta dances"), 0.3),
    ]
    sources = find_sources(passages, stream(), LIBRARY)
    assert [(each.quote, each.weight) for each in sources] == [
        ("Gamma sings. Delta dances.", 0.8),
        ("Alpha is here.", 0.2),
    ]


def test_sources_that_share_a_sentence_hold_what_both_do() -> None:
    text = "One is the first here. Two is the next there. Three is the last one."
    page = Document("Page", "pdf", "4" * 64, (Page(1, "page 1", text, PageQuality(len(text), "text")),))
    whole = compose(Letters(), [("d-page", page)])  # type: ignore[arg-type]
    passages = [Passage(0, text.index(" Three"), 0.4), Passage(text.index("Two"), len(text), 0.3)]
    (source,) = find_sources(passages, whole, DocumentCache({"d-page": page}.__getitem__))
    assert (source.quote, round(source.weight, 6), source.start) == (text, 0.7, 0)


def test_a_passage_over_two_documents_is_divided() -> None:
    start, _ = read_back("dances")
    _, end = read_back("Epsilon")
    sources = find_sources([Passage(start, end, 0.8)], stream(), LIBRARY)
    assert {(each.document, each.weight) for each in sources} == {("d-first", 0.4), ("d-second", 0.4)}


def test_spans_stop_at_the_end_of_the_last_token() -> None:
    stretch = Stretch("d-first", 0, 3, 10)
    spans = Stream(torch.arange(3), torch.tensor([0, 4, 8]), (stretch,)).spans(1, 3)
    assert [(each.start, each.end) for each in spans] == [(4, 10)]


def test_quotations_are_shown_only_where_their_words_are() -> None:
    answer = 'It says “gamma SINGS” and "Gamma shouts" and “epsilon waits”.'
    checked = check_quotations(answer, stream(), LIBRARY)
    assert [(each.document, each.page) for each in checked] == [("d-first", 2), (None, None), ("d-second", 1)]
    for word, known in (("Gamma", [None, None, None]), ("Epsilon", ["d-first", None, None])):
        before = stream().until(read_back(word)[0])
        assert [each.document for each in check_quotations(answer, before, LIBRARY)] == known, "what comes later is not"
    assert answer[checked[0].start : checked[0].end] == "“gamma SINGS”"


def test_sentences_lead_to_the_sources_that_they_rested_on() -> None:
    """A sentence may cite a source that the whole answer hardly attended to; one without attention cites none."""
    sources = find_sources([Passage(*read_back("sings"), 0.5), Passage(*read_back("waits"), 0.3)], stream(), LIBRARY)
    sentences = [
        Sentence(0, 9, [Passage(*read_back("Epsilon"), 0.2), Passage(*read_back("Delta"), 0.1)]),
        Sentence(9, 20, [Passage(*read_back("Beta"), 0.4)]),
        Sentence(20, 25, []),
        Sentence(25, 30, [Passage(*read_back("Gamma"), 0.1)]),
    ]
    found, citations = with_citations(sources, sentences, stream(), LIBRARY, "")
    assert [each.quote for each in found] == ["Gamma sings.", "Beta is there.", "Epsilon waits."]
    assert citations == [Citation(0, 9, 2), Citation(9, 20, 1), Citation(25, 30, 0)]


def test_a_place_with_a_small_share_of_the_attention_is_no_source() -> None:
    few = [Passage(*read_back("waits"), 0.03), Passage(*read_back("Beta"), 0.03), Passage(*read_back("there"), 0.03)]
    sources = find_sources([Passage(*read_back("sings"), 0.5), *few], stream(), LIBRARY)
    assert [each.quote for each in sources] == ["Gamma sings.", "Beta is there."], "two passages of one sentence"
    small = Sentence(0, 9, [Passage(*read_back("Gamma"), 0.01)]), Sentence(9, 20, few[:1])
    assert with_citations(sources, small, stream(), LIBRARY, "") == (sources, [Citation(0, 9, 0)])


def test_an_answer_of_one_sentence_cites_nothing() -> None:
    sources = find_sources([Passage(*read_back("sings"), 0.5)], stream(), LIBRARY)
    sentences = [Sentence(0, 9, [Passage(*read_back("Beta"), 0.4)])]
    assert with_citations(sources, sentences, stream(), LIBRARY, "") == (sources, [])


def test_a_long_answer_has_no_more_sources_than_people_look_at() -> None:
    text = " ".join(f"This is fact {number}." for number in range(30))
    long = Document("Long", "pdf", "3" * 64, (Page(1, "page 1", text, PageQuality(len(text), "text")),))
    document_cache = DocumentCache({"d-long": long}.__getitem__)
    whole = compose(Letters(), [("d-long", long)])  # type: ignore[arg-type]
    places = [text.index(f"fact {number}.") for number in range(30)]
    sentences = [Sentence(n, n + 1, [Passage(at, at + 6, 0.06)]) for n, at in enumerate(places)]
    found, citations = with_citations([], sentences, whole, document_cache, "")
    assert len(found) == len(citations) == MOST_CITED
    assert {each.source for each in citations} == set(range(MOST_CITED))


def test_of_a_passage_the_sentences_with_words_of_the_answer_are_shown() -> None:
    """A passage over two pages was shown as the end of the first one, where nothing of it was said."""
    passage = [Passage(read_back("Beta")[0], read_back("dances")[1], 0.5)]

    def shown(said: str) -> list[tuple[int, str]]:
        found = narrowed(find_sources(passage, stream(), LIBRARY, said), LIBRARY, said)
        return [(each.page, each.quote) for each in found]

    assert shown("Who sings? It is Gamma.") == [(2, "Gamma sings.")]
    assert shown("What is there? Beta.") == [(1, "Beta is there.")]
    assert shown("Who dances? It was Delta, as Gamma says.") == [(2, "Gamma sings. Delta dances.")]
    assert len(shown("Nothing of it.")) == 1


def test_no_attention_counts_twice_where_sentences_of_a_passage_are_cited() -> None:
    """An answer showed 128 % of the attention: its sources had been narrowed to other sentences than those it cites."""
    whole = [Passage(read_back("Gamma")[0], read_back("dances")[1], 0.9)]
    sentences = [Sentence(0, 9, whole), Sentence(9, 20, [Passage(*read_back("Delta dances"), 0.5)])]
    said = "Who sings? Gamma."
    found, citations = with_citations(find_sources(whole, stream(), LIBRARY, said), sentences, stream(), LIBRARY, said)
    assert [each.weight for each in found] == [0.9]
    assert [each.source for each in citations] == [0, 0]
    assert [each.quote for each in narrowed(found, LIBRARY, said)] == ["Gamma sings."]
