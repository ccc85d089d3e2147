"""Fields of Word: their codes are no text, what they show is, and so are the values of forms.

A field is a code and its result between marks that stand in runs of their own, within one another and over paragraphs.
"""

from lxml import etree

from ingest.office.numbering import W, is_on, value

CHECKED, UNCHECKED = "☒", "☐"
_MARK = f"{W}fldChar"
_WHOLE = "whole"  # an attribute of marks whose field has a beginning and an end


class Fields:
    """Follows the marks of fields in reading order."""

    def __init__(self, root: etree._Element, deleted: frozenset[str]) -> None:
        """deleted: elements that are not read."""
        self._open: list[bool] = []  # for each field around: whether this is its code
        begun: list[list[etree._Element]] = []
        for mark in root.iter(_MARK):
            if any(above.tag in deleted for above in mark.iterancestors()):
                continue
            kind = mark.get(f"{W}fldCharType")
            if kind == "begin":
                begun.append([mark])
            elif begun:
                begun[-1].append(mark)
                if kind == "end":
                    for each in begun.pop():
                        each.set(_WHOLE, "")

    @property
    def in_code(self) -> bool:
        """Whether what comes is the code of a field, and not read."""
        return any(self._open)

    def mark(self, element: etree._Element) -> str:
        """Take the next mark; what a form's field shows that has no text."""
        if _WHOLE not in element.attrib:  # the rest of the document would be taken for its code
            return ""
        hidden, kind = self.in_code, element.get(f"{W}fldCharType")
        if kind == "begin":
            self._open.append(True)
            return "" if hidden else _form_value(element)
        if kind == "end" and self._open:
            self._open.pop()
        elif kind == "separate" and self._open:
            self._open[-1] = False
        return ""


def _form_value(mark: etree._Element) -> str:
    box, choice = mark.find(f"{W}ffData/{W}checkBox"), mark.find(f"{W}ffData/{W}ddList")
    if box is not None:
        said = box.find(f"{W}checked")
        return CHECKED if is_on(box.find(f"{W}default") if said is None else said) else UNCHECKED
    if choice is not None:
        entries = [value(each) or "" for each in choice.iterfind(f"{W}listEntry")]
        chosen = value(choice.find(f"{W}result")) or value(choice.find(f"{W}default")) or "0"
        return entries[int(chosen)] if chosen.isdecimal() and int(chosen) < len(entries) else ""
    return ""
