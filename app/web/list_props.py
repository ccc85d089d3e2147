"""Props of the lists: contexts, sessions, kept documents, and contexts that documents can be added to."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app import listing
from app.formatting import plural, whole_percent
from app.jobs.sweeps import tables, title_of
from app.jobs.uploads import INGEST, WAITING, is_listed, is_locked, name_of, useless
from app.language import figure, t
from app.machine.model_names import shown_name
from app.reading.preparing import can_grow
from app.reading.previews import Length, length_of, pages_in_words
from app.service import Service
from app.web.new_reading import OF_ITS_OWN
from app.web.views.markup import day
from sessions import UNDER_WAY, ContextRow, Store, number_of

if TYPE_CHECKING:
    from app.web.tab_state import Selection

Props = dict[str, dict[str, Any]]
LISTED = 50
"""Items that each list shows at first: the latest ones, and the selected one."""
MORE = 5
"""Steps of AT_ONCE turns, or of LISTED items, that are added when more are asked for."""
CAN_GO_ON = "Choose a document that was read before, to read these behind its end."
GOES_ON = "These are read behind its end, with the same model and memory. It is not read again, and stays as it is."
GOES_ON_ALONG = (
    "These are read behind its end, with the same model and memory. It is not read again, and stays as it is. The chat "
    "goes along."
)
SHOWN_LETTERS = 28
"""Characters of a title that a list surely has room for."""


class ListProps:
    """Makes the props of the lists."""

    def __init__(self, service: Service) -> None:
        """Keep the home that is shown."""
        self.service = service
        self.store = service.store

    def contexts(self, selection: "Selection") -> Props:
        """Return the props of the list of uploads, contexts and tables: those under way first, then the last used or
        made.
        """
        contexts, more = self.store.contexts.latest(most_listed(selection.listed), selection.context)
        used, found = self.store.sessions.last_used([row.id for row in contexts]), []
        states = ("queued", "running", "failed")
        jobs = (job for status in states for job in self.store.jobs.all(kind=INGEST, status=status))
        for job in {job.id: job for job in jobs}.values():  # a job may change its status in between
            if not is_listed(self.service, job):
                continue
            running = "waiting" if job.stage == WAITING else "opening"
            words = {"queued": "waiting", "running": running, "failed": "could not be read"}
            state = t("needs a password" if is_locked(self.service, job) else words[job.status])
            name = f"{name_of(self.service, job)}\n{state}"
            found.append((job.status in UNDER_WAY, job.created_at, (name, job.id)))
        for job in tables(self.service):
            state = listing.joined([row.title for row in self.store.documents.existing(job.payload["documents"])], 3)
            name = f"{title_of(job)}\n{state}"
            found.append((job.status in UNDER_WAY, job.created_at, (name, job.id)))
        apart, lengths = _differences(contexts), self._lengths(contexts)
        for context in contexts:
            state = _state_of(context, share_read(self.store, context), apart[context.id], lengths)
            name = f"{context.title}\n{state}"
            found.append((False, max(context.created_at, used.get(context.id, 0.0)), (name, context.id)))
        choices = [choice for *_, choice in sorted(found, reverse=True)]
        return list_props("contexts", "documents", choices, selection.context or None, selection.listed, more)

    def remove_failed(self) -> dict[str, Any]:
        """Return the props of the button that removes all useless uploads; it is shown if there are several."""
        many = len(useless(self.service))
        said = t("Remove failed files ({n})", n=many)
        return {"visible": many > 1, "value": said if many > 1 else ""}

    def kept(self, selection: "Selection") -> Props:
        """Return the props of the list of kept documents."""
        read = self.store.contexts.get(selection.add_to).document_ids if selection.add_to else []
        rows, more = self.store.documents.latest(most_listed(selection.listed), selection.kept, read)
        kept = [(f"{row.title} · {plural(row.characters, 'character')}", row.id) for row in rows]
        return {
            "kept_area": {"visible": bool(kept)},
            **list_props("kept", "documents", kept, list(selection.kept), selection.listed, more),
            "delete_kept": {"interactive": bool(selection.kept)},
            "each_area": {"visible": bool(selection.kept)},
            "compare": {"visible": len(selection.kept) == 2},
        }

    def add_to(self, selection: "Selection", context: ContextRow | None) -> Props:
        """Return the props of the choice of a context to add documents to."""
        able, more = list[ContextRow](), 0
        if not selection.context:
            able, more = self.store.contexts.latest(most_listed(selection.listed), selection.add_to, whole=True)
        apart, lengths = _differences(able), self._lengths(able)
        choices = [(f"{row.title} · {_state_of(row, 1.0, apart[row.id], lengths)}", row.id) for row in able]
        listed = list_props("add_to", "documents", choices, selection.add_to, selection.listed, more)
        alone = {"visible": not selection.add_to}
        return {
            **listed,
            "add_to": {
                "choices": [(t(OF_ITS_OWN), ""), *listed["add_to"]["choices"]],
                "value": selection.add_to,
                "visible": bool(able),
                "info": t(_going_on(selection)),
            },
            "how": alone,
            "more_how": alone,
            "add_documents": {"visible": context is not None and can_grow(context)},
        }

    def _lengths(self, contexts: Sequence[ContextRow]) -> dict[str, Length]:
        """Return the lengths of the documents of contexts by id."""
        rows = self.store.documents.existing([*{id for context in contexts for id in context.document_ids}])
        return {row.id: length_of(row.format, row.pages, row.characters) for row in rows}

    def sessions(self, selection: "Selection") -> Props:
        """Return the props of the list of sessions over the selected context, the last used first.

        One without a question is left out unless it is the shown one; "New chat" takes it again.
        """
        rows, more = self.store.sessions.latest(selection.context, most_listed(selection.listed), selection.session)
        choices = [
            (
                f"{row.title}\n{number_before(row.title)}{plural(row.turns, 'question')} · {day(row.updated_at)}",
                row.id,
            )
            for row in rows
        ]
        return list_props("sessions", "chats", choices, selection.session or None, selection.listed, more)


def share_read(store: Store, context: ContextRow) -> float:
    """Return the share of a context's text that is read, 0 to 1."""
    work = store.jobs.work_on(context.id) if context.status == "reading" else None
    done = max(context.tokens_read, work.done if work else 0)
    return done / context.tokens if context.tokens else 0.0


def number_before(title: str) -> str:
    """Return the number of a title, to go before the line below it, if a list may cut the title off."""
    number = number_of(title)
    return f"{number} · " if number and len(title) > SHOWN_LETTERS else ""


def most_listed(listed: int) -> int:
    """Return the most items of a list. listed: how often more were asked for."""
    return LISTED * (1 + MORE * listed)


def list_props(
    name: str, things: str, choices: list[tuple[str, str]], value: str | list[str] | None, listed: int, more: int
) -> Props:
    """Return the props of a list and of the button that shows more of it.

    Args:
        name: slot of the list.
        things: noun for its items.
        choices: (name, id) of the latest items, the latest first; the selected ones are among them.
        value: the selected id or ids.
        listed: how often more were asked for.
        more: number of items behind these.
    """
    most, selection = most_listed(listed), value if isinstance(value, list) else [value]
    shown = choices[:most] + [each for each in choices[most:] if each[1] in selection]
    hidden = len(choices) - len(shown) + more
    return {
        name: {"choices": shown, "value": value},
        f"more_{name}": {
            "visible": bool(hidden),
            "value": t(f"Show more {things} ({{n}})", n=hidden) if hidden else "",
        },
    }


def _going_on(selection: "Selection") -> str:
    """Return a sentence that says what happens to documents when they are added to others."""
    if selection.along:
        return GOES_ON_ALONG
    return GOES_ON if selection.add_to else CAN_GO_ON


def _differences(contexts: Sequence[ContextRow]) -> dict[str, str]:
    """Return words that tell contexts with the same title apart: model, method, memory or date; "" if none has it."""
    alike: dict[str, list[ContextRow]] = {}
    for row in contexts:
        alike.setdefault(row.title, []).append(row)
    found: dict[str, str] = {}
    for rows in alike.values():
        facts = [
            (
                shown_name(row.model),
                row.method,
                figure(f"{row.budget:,}") if row.budget else t("no limit"),
                day(row.created_at),
            )
            for row in rows
        ]
        differ = [number for number in range(3) if len({each[number] for each in facts}) > 1]
        same = len({tuple(each[number] for number in differ) for each in facts}) < len(rows)
        for row, each in zip(rows, facts, strict=True):
            told = [each[number] for number in differ] + [each[3]] * same
            found[row.id] = " · ".join(told) if len(rows) > 1 else ""
    return found


def _state_of(context: ContextRow, share: float, apart: str, lengths: Mapping[str, Length]) -> str:
    """Return the line below a title: what tells it apart, and how far it is read.

    Args:
        context: the context.
        share: share of its text that is read.
        apart: words of `_differences`; if "", the model and the method unless it is the usual one.
        lengths: length of its documents by id.
    """
    own = [lengths[id] for id in context.document_ids if id in lengths]
    states = {
        "ready": pages_in_words(own) if own else "",
        "reading": t("reading {share}", share=whole_percent(share)),
        "paused": t("stopped at {share}", share=whole_percent(share)),
    }
    how = [apart] if apart else listing.how_read(context)
    return " · ".join(filter(None, [*how, states.get(context.status, t(context.status))]))
