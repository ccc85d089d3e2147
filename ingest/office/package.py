"""Open XML packages: parts, and the relations between them.

Programs name parts as they like, in any case, so parts are found by the relations that lead to them and by their
content types.
"""

import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import IO
from xml.sax.saxutils import quoteattr

from lxml import etree

from ingest.archive import Members, read_member
from ingest.limits import Limits
from ingest.markup.xml import parse_xml
from ingest.office.common import OPEN, with_transitional_names

TYPES = "[Content_Types].xml"
_NAMESPACE = "http://schemas.openxmlformats.org/package/2006"
_OF_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"
_KINDS = (("wordprocessingml|ms-word", "docx"), ("presentationml|ms-powerpoint", "pptx"), ("spreadsheetml", "xlsx"))
_KINDS_OTHERWISE = (("ms-excel.sheet.binary", "xlsb"), ("ms-excel", "xlsx"), ("visio", "visio"))
_ROOTS = {b"document": "docx", b"presentation": "pptx", b"workbook": "xlsx", b"VisioDocument": "visio"}
_ROOT = re.compile(rb"<(?:\w+:)?(document|presentation|workbook|VisioDocument)[\s>]")
_USUAL = ("word/document.xml", "ppt/presentation.xml", "xl/workbook.xml", "xl/workbook.bin", "visio/document.xml")
_FOLDERS = (("word/", "docx"), ("ppt/", "pptx"), ("xl/workbook.bin", "xlsb"), ("xl/", "xlsx"), ("visio/", "visio"))
_MAIN_TYPES = {
    "docx": f"{OPEN}.wordprocessingml.document.main+xml",
    "pptx": f"{OPEN}.presentationml.presentation.main+xml",
}
# Content types that the libraries need, by the kind of the relation to the part.
_TYPES_BY_KIND = {
    **{kind: f"{OPEN}.wordprocessingml.{kind}+xml" for kind in ("styles", "numbering", "settings", "footnotes")},
    **{kind: f"{OPEN}.presentationml.{kind}+xml" for kind in ("slide", "slideLayout", "slideMaster")},
    **{kind: f"{OPEN}.presentationml.{kind}+xml" for kind in ("notesSlide", "notesMaster")},
    "core-properties": "application/vnd.openxmlformats-package.core-properties+xml",
}
_OF_WORDS = re.compile(
    r"footnotes|endnotes|comments\w*|slide|notesSlide|chart\w*|diagramData|worksheet|sharedStrings|aFChunk|subDocument"
)


@dataclass(frozen=True)
class Relation:
    """The way from one part to another."""

    kind: str  # the last word of its type, such as "worksheet"
    target: str  # the name of a part, or an external address
    is_external: bool


class Package:
    """An archive whose parts are found by name. Methods raise as `read_member` does if a part cannot be unpacked."""

    def __init__(self, archive: zipfile.ZipFile, limits: Limits) -> None:
        self._archive, self._limits = archive, limits
        self._members = Members(archive)
        self.xml_warnings: list[str] = []  # about damaged XML

    def xml(self, name: str) -> etree._Element | None:
        """Return the root of a part with transitional names, or None if there is no such part.

        Raises:
            BrokenFile: it is no XML.
        """
        data = self.data(name)
        return None if data is None else parse_xml(with_transitional_names(data), name, self.xml_warnings)

    def data(self, name: str) -> bytes | None:
        """Return the bytes of a part, or None if there is no such part."""
        found = self._members.find(name) if name else None
        return None if found is None else read_member(self._archive, self._members.names[found], self._limits)

    def elements(self, name: str, tag: str, until: str = "") -> Iterator[etree._Element]:
        """Yield the elements of one name in a part, one at a time; each is cleared when the next one comes.

        Args:
            name: the part; a missing one has no elements.
            tag: the elements' name.
            until: stop at the end of an element of this name.

        Raises:
            etree.XMLSyntaxError: it is no XML. It is not repaired, as that would lose rows silently.
        """
        found = self._members.find(name) if name else None
        if found is None:
            return
        with self._archive.open(self._members.names[found]) as stream:
            yield from _stream(stream, tag, until)

    def has(self, name: str) -> bool:
        """Return whether there is a part of that name."""
        return bool(name) and self._members.find(name) is not None

    def relations(self, name: str) -> dict[str, Relation]:
        """Return the relations of a part by id; "" is the whole package. Links into the part itself are external."""
        folder, base = posixpath.split(name)
        root = self.xml(posixpath.join(folder, "_rels", f"{base}.rels"))
        found = {}
        for each in () if root is None else root:
            if not isinstance(each.tag, str):
                continue
            target, external = each.get("Target") or "", each.get("TargetMode") == "External"
            if not external and target.startswith("#"):
                external = True
            if not external:
                target = posixpath.join("/", folder, target.replace("\\", "/").partition("#")[0])
                target = self._members.find(target) or posixpath.normpath(target).lstrip("/")
            kind = (each.get("Type") or "").rpartition("/")[2]
            found[each.get("Id") or ""] = Relation(kind, target, external)
        return found

    def related(self, relations: dict[str, Relation]) -> Callable[[str], bytes | None]:
        """Return a function from the id of one of these relations to the bytes of its part."""

        def part(identity: str) -> bytes | None:
            relation = relations.get(identity)
            return None if relation is None or relation.is_external else self.data(relation.target)

        return part

    @cached_property
    def main(self) -> str:
        """The name of the main part: a document, a presentation or a workbook; "" without one."""
        led_to = [each.target for each in self.relations("").values() if each.kind == "officeDocument"]
        typed = [name for name in self._members.names if ".main+xml" in self.content_type(name)]
        return next((found for name in (*led_to, *typed, *_USUAL) if (found := self._members.find(name))), "")

    @property
    def kind(self) -> str:
        """The kind of file: "docx", "pptx", "xlsx", or "xlsb" or "visio", which are not read; "" for others."""
        if not self.main:
            return ""
        said = self.content_type(self.main)
        for words, kind in (*_KINDS_OTHERWISE[:1], *_KINDS, *_KINDS_OTHERWISE[1:]):
            if re.search(words, said):
                return kind
        if root := _ROOT.search((self.data(self.main) or b"")[:4096]):
            return _ROOTS[root[1]]
        return folder_kind(self.main)

    def content_type(self, name: str) -> str:
        """Return the content type of a part; "" if the package declares none."""
        overrides, defaults = self._types
        return overrides.get(name.casefold()) or defaults.get(posixpath.splitext(name)[1].lstrip(".").casefold(), "")

    @cached_property
    def _types(self) -> tuple[dict[str, str], dict[str, str]]:
        root = self.xml(TYPES)
        overrides, defaults = {}, {}
        for each in () if root is None else root.iter("{*}Override"):
            overrides[(each.get("PartName") or "").replace("\\", "/").lstrip("/").casefold()] = (
                each.get("ContentType") or ""
            )
        for each in () if root is None else root.iter("{*}Default"):
            defaults[(each.get("Extension") or "").casefold()] = each.get("ContentType") or ""
        return overrides, defaults

    def readable_copy(self) -> tuple[io.BytesIO, list[str]]:
        """Return a package that python-docx and python-pptx can open, and the missing parts that would hold text.

        The copy's XML has transitional names, its relations lead to existing parts, and every part has a content type.
        Pictures, recordings and files in it are empty.

        Raises:
            TooLarge: a part is too large; or any error of `read_member`.
        """
        copy = io.BytesIO()
        names = [name for name in self._members.names if not (name.endswith(".rels") or name == TYPES)]
        kinds = {self.main: "officeDocument"}
        lost: dict[str, None] = {}
        with zipfile.ZipFile(copy, "w") as lean:
            for owner in ("", *names):
                relations = self.relations(owner)
                if not owner and not any(each.target == self.main for each in relations.values()):
                    relations["rMain"] = Relation("officeDocument", self.main, False)
                if relations:
                    folder, base = posixpath.split(owner)
                    there = dict(self._resolved(owner, relations, kinds, lost))
                    lean.writestr(posixpath.join(folder, "_rels", f"{base}.rels"), _relations_xml(there))
            types = {name: self._known_content_type(name, kinds.get(name, "")) for name in names}
            for name, said in types.items():
                is_xml = name.endswith(".xml") or said.endswith("xml")
                lean.writestr(name, with_transitional_names(self.data(name) or b"") if is_xml else b"")
            lean.writestr(TYPES, _content_types_xml(types))
        return copy, list(lost)

    def _resolved(
        self, owner: str, relations: dict[str, Relation], kinds: dict[str, str], lost: dict[str, None]
    ) -> Iterator[tuple[str, tuple[str, Relation]]]:
        """Yield relations with their full types, by id. A relation to a missing part becomes external."""
        root = self.xml(posixpath.join(posixpath.dirname(owner), "_rels", f"{posixpath.basename(owner)}.rels"))
        types = {each.get("Id") or "": each.get("Type") or "" for each in (() if root is None else root.iter("{*}*"))}
        for identity, each in relations.items():
            kind = types.get(identity) or f"{_OF_OFFICE}{each.kind}"
            if each.is_external or self.has(each.target):
                if not each.is_external:
                    kinds.setdefault(each.target, each.kind)
                yield identity, (kind, each)
                continue
            if _OF_WORDS.fullmatch(each.kind):
                lost[each.target] = None
            yield identity, (kind, Relation(each.kind, f"/{each.target}", True))

    def _known_content_type(self, name: str, kind: str) -> str:
        said = with_transitional_names(self.content_type(name).encode()).decode()
        if name == self.main and not said.endswith(".main+xml"):
            return _MAIN_TYPES.get(self.kind, said)
        if said in ("", "application/xml"):
            said = _TYPES_BY_KIND.get(kind, said)
        return said or ("application/xml" if name.endswith(".xml") else "application/octet-stream")


def folder_kind(name: str) -> str:
    """Return the kind of package that has a part of this name in its main folder; "" if none has."""
    return next((kind for start, kind in _FOLDERS if name.casefold().startswith(start)), "")


def _relations_xml(relations: dict[str, tuple[str, Relation]]) -> str:
    lines = []
    for identity, (kind, each) in relations.items():
        target = quoteattr(each.target if each.is_external else f"/{each.target}")
        mode = ' TargetMode="External"' if each.is_external else ""
        lines.append(f"<Relationship Id={quoteattr(identity)} Type={quoteattr(kind)} Target={target}{mode}/>")
    return f'<Relationships xmlns="{_NAMESPACE}/relationships">{"".join(lines)}</Relationships>'


def _content_types_xml(types: dict[str, str]) -> str:
    relations = "application/vnd.openxmlformats-package.relationships+xml"
    lines = [f'<Default Extension="rels" ContentType="{relations}"/>']
    lines += [
        f"<Override PartName={quoteattr(f'/{name}')} ContentType={quoteattr(said)}/>" for name, said in types.items()
    ]
    return f'<Types xmlns="{_NAMESPACE}/content-types">{"".join(lines)}</Types>'


def _stream(stream: IO[bytes], tag: str, until: str) -> Iterator[etree._Element]:
    tags = [f"{{*}}{name}" for name in (tag, until) if name]
    parser = etree.iterparse(
        stream, tag=tags, resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True
    )
    for _, element in parser:
        if until and element.tag.endswith(f"}}{until}"):
            return
        yield element
        element.clear()
        above = element.getparent()
        while above is not None and element.getprevious() is not None:
            del above[0]
