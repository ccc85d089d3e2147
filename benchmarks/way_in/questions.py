"""Questions about two texts: what they state, the accepted answers, and the words of the text that say so."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question about a text.

    accepted: an answer that contains one of these is right.
    said: a passage that contains these words of the text is a right source.
    """

    text: str
    accepted: tuple[str, ...]
    said: str

    def is_right(self, answer: str) -> bool:
        """Return whether an answer contains an accepted one."""
        return any(plain(each) in plain(answer) for each in self.accepted)

    def is_in(self, passage: str) -> bool:
        """Return whether a passage says the answer."""
        return plain(self.said) in plain(passage)


def plain(text: str) -> str:
    """Return a text in small letters, with plain quotation marks, dashes and blanks."""
    signs = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "‑": "-"})
    return re.sub(r"\s+", " ", text.translate(signs)).casefold().strip()


NOVEL = (
    Question("From which place did the narrator graduate in 1915?", ("New Haven", "Yale"), "graduated from New Haven"),
    Question("What make of car did the narrator have?", ("Dodge",), "an old Dodge"),
    Question(
        "Of which nationality was the woman who made the narrator's bed?", ("Finnish", "Finn", "Finland"), "Finnish"
    ),
    Question("How many dollars a month did the narrator's bungalow cost?", ("eighty", "80"), "at eighty a month"),
    Question("From where did Tom bring a string of polo ponies?", ("Lake Forest",), "polo ponies from Lake Forest"),
    Question("In which village on Long Island did the narrator live?", ("West Egg",), "I lived at West Egg"),
    Question("Which business did the narrator decide to learn?", ("bond",), "learn the bond business"),
    Question("From which dukes does the narrator's family say it descends?", ("Buccleuch",), "Dukes of Buccleuch"),
    Question("Who wrote the book about empires that Tom talks about?", ("Goddard",), "this man Goddard"),
    Question("How old is Daisy's little daughter?", ("three", "3"), "three years old"),
)
"""About the beginning of *The Great Gatsby*, chapter I."""
PAPER = (
    Question("What does DPR stand for?", ("dense passage retriev",), "Dense Passage Retriever (DPR)"),
    Question("Who is the first author of this paper?", ("Karpukhin",), "Vladimir Karpukhin"),
    Question(
        "By how many percent does the dense retriever outperform Lucene-BM25 in top-20 accuracy?",
        ("9%", "9 %", "9 percent"),
        "9%-19%",
    ),
    Question("Which pretrained language model do the authors leverage?", ("BERT",), "BERT pretrained model"),
    Question("What is the Top-5 accuracy of BM25?", ("42.9",), "65.2% vs. 42.9%"),
    Question("At which company do most of the authors work?", ("Facebook",), "Facebook AI"),
    Question("Which actor portrayed the villain Sauron?", ("Sala Baker",), "Sala Baker"),
    Question("Which pretraining task does ORQA propose?", ("inverse cloze", "ICT"), "inverse cloze task"),
    Question(
        "Which kind of search algorithms makes the retrieval efficient?",
        ("inner product", "MIPS"),
        "maximum inner product search",
    ),
    Question("How many passages are there in the experiments?", ("21 million",), "21 million passages"),
)
"""About the first two pages of *Dense Passage Retrieval for Open-Domain Question Answering* (arXiv:2004.04906)."""
