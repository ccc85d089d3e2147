"""Words on pages."""

import pytest

from app.asking.quotes import PageWords, is_sentence, quotations_in, sentences_around, whole_sentences

PAGE = (
    "Call me Ishmael. Some years ago, Mr. Brown went to sea—never mind how long precisely—with little money. "
    "The pot boils! Is it done? It is."
)


def pages_around(text: str, words: str, limit: int = 400) -> str:
    start = text.index(words)
    span = sentences_around(text, start, start + len(words), limit)
    return text[span.start : span.end]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("Ishmael", "Call me Ishmael."),
        ("years", "Some years ago, Mr. Brown went to sea—never mind how long precisely—with little money."),
        ("money", "Some years ago, Mr. Brown went to sea—never mind how long precisely—with little money."),
        ("pot boils", "The pot boils!"),
        ("pot boils! Is it do", "The pot boils! Is it done?"),
        ("boils! Is", "The pot boils!"),  # few words of both: the sentence with more of them
        ("It is", "It is."),
    ],
)
def test_the_sentences_around_a_passage(words: str, sentence: str) -> None:
    assert pages_around(PAGE, words) == sentence


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        ("He rose. “What is it?” he cried at last. She went.", "cried", "“What is it?” he cried at last."),
        (
            "So it was. See Karpukhin et al. (2020) and Fig. 3 for more. Then",
            "2020",
            "See Karpukhin et al. (2020) and Fig. 3 for more.",
        ),
        ("Rules:\n1. Never go out.\n2. Burn the lamp.", "lamp", "2. Burn the lamp."),
        ("It ended.\n\nthen a verse", "verse", "then a verse"),
        (
            "12.3 Payment; see\n6.4 below and Annex A\n12.4 Nine months' notice ends it",
            "notice",
            "12.4 Nine months' notice ends it",
        ),
        (
            "12.3 Payment; see\n6.4 below and Annex A\n12.4 Nine months",
            "see",
            "12.3 Payment; see\n6.4 below and Annex A",
        ),
        ("Signed for the Supplier: Ing. Pavel Novak. Signed", "Pavel", "Signed for the Supplier: Ing. Pavel Novak."),
        ("One is here now. Two is the one. Three is long gone.", "now. Two is the one. Three", "Two is the one."),
    ],
)
def test_a_sentence_has_its_beginning_and_its_end(text: str, words: str, sentence: str) -> None:
    assert pages_around(text, words) == sentence


def test_sentences_at_the_edges_go_where_there_are_too_many() -> None:
    text = "Alpha is one of them all. Beta was the second of them. Gamma came as the third one."
    assert pages_around(text, "one of them all. Beta was the second of them. Gamma came as", 60) == (
        "Alpha is one of them all. Beta was the second of them."
    )


def test_a_paragraph_ends_a_sentence() -> None:
    assert pages_around("A heading\n\nthe words below it\n\nmore", "below") == "the words below it"


@pytest.mark.parametrize("limit", [20, 40, 63])
def test_a_quote_is_never_longer_than_its_limit_and_holds_whole_words(limit: int) -> None:
    text = "word " * 500
    quote = pages_around(text, "word word", limit)
    assert len(quote) <= limit
    assert set(quote.split()) == {"word"}


def test_a_passage_longer_than_the_limit_is_cut_at_its_end() -> None:
    span = sentences_around("x" * 1000, 100, 900, 50)
    assert (span.start, span.end) == (100, 150)


def test_a_very_long_sentence_is_cut_behind_a_clause_and_says_so() -> None:
    text = f"When the lamp went out, {'and on and on, ' * 9}the keeper rose; {'so it went, ' * 9}and nobody came."
    at = text.index("keeper")
    span = sentences_around(text, at, at + 6, 80)
    assert text[span.start : span.end].startswith("and on and on, ")
    assert text[span.start : span.end].endswith("the keeper rose;")
    assert (span.begins, span.ends) == (False, False)
    whole = sentences_around(text, at, at + 6, 600)
    assert (text[whole.start : whole.end], whole.begins, whole.ends) == (text, True, True)


def test_quotations_are_compared_by_their_words() -> None:
    pages = PageWords(["“The lamp must\nnever go dark,” she wrote", "on her first evening at Cape Orlen", "nothing"])
    assert pages.find("the lamp must never go DARK") == 0
    assert pages.find("she wrote on her first evening") == 0  # runs on to the next page
    assert pages.find("cape orlen") == 1
    assert pages.find("the lamp must always go dark") is None
    assert pages.find("amp must never") is None  # whole words only
    assert pages.find("  …  ") is None


def test_words_without_blanks_between_them_are_found() -> None:
    """A whole clause counted as one word, so a true quotation in Japanese was marked as wrong."""
    page = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"
    assert PageWords([page]).find("猫である") == 0
    assert PageWords([page]).find("犬である") is None
    assert pages_around(page, "まだ") == "名前はまだ無い。"
    assert [words for _, words in quotations_in("「猫である」と „Guten Tag“ und „gut”")] == [
        "猫である",
        "Guten Tag",
        "gut",
    ]
    assert PageWords(["ฉันรักแมว"]).find("รักแมว") == 0


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("Anna kept the lamp.", True),
        (" “Who was it?”", True),
        ("\n- Anna Reed", True),
        ("2) the lamp at Harrow", True),
        ("彼は言った。", True),
        ("I", False),
        ("In the world", False),
        ("The world is a", False),
        ("\n- Anna", False),
    ],
)
def test_a_fragment_is_no_sentence(text: str, whole: bool) -> None:
    assert is_sentence(text) == whole


def test_quotations_in_an_answer() -> None:
    answer = 'She wrote “The lamp must never go dark”, then "it rains", and «rien». A 6" pipe is no quotation.'
    found = quotations_in(answer)
    assert [words for _, words in found] == ["The lamp must never go dark", "it rains", "rien"]
    assert [answer[span.start : span.end][0] for span, _ in found] == ["“", '"', "«"]


@pytest.mark.parametrize(
    ("answer", "sentences"),
    [
        ("Mr. Brown is 3.5 m tall. He left", ["Mr. Brown is 3.5 m tall."]),
        ("**It is so.** And", ["**It is so.**"]),
        ("1. The first\n2. The second.\nThen", ["1. The first", "\n2. The second."]),
        ("## Points\n- One\n", ["## Points\n- One"]),
        ("| a | b. |\n|---|---|\nSo it is.\n", ["| a | b. |\n|---|---|\nSo it is."]),
        ("```\nprint(1). 2\nx\n```\nDone. ", ["```\nprint(1). 2\nx\n```\nDone."]),
        ("彼は言った。次に", ["彼は言った。"]),
        ("one, two", []),
    ],
)
def test_an_answer_is_parted_into_sentences_as_it_grows(answer: str, sentences: list[str]) -> None:
    found, done = [], 0
    for size in range(1, len(answer) + 1):
        now = whole_sentences(answer[:size], done)
        if now > done:
            found.append(answer[done:now])
        done = now
    assert found == sentences
