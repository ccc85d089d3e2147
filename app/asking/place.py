"""A reader's place: how far somebody has read a document. Answers then know nothing that comes later."""

from app.asking.named_pages import pages_up_to
from app.service import Service
from sessions import ContextRow

KIND = "place"  # kind of the measurement that holds it


def keep_place(service: Service, document_id: str, page: str) -> None:
    """Keep how far a document has been read.

    Args:
        service: the home in use.
        document_id: the document.
        page: the last page or paragraph that is known, as a person names it; "" for the end.

    Raises:
        UsageError: the document has no such page.
    """
    if page.strip():
        pages_up_to(page, [document_id], service.document_cache)
    service.store.measurements.add(KIND, document_id, {"page": page.strip()})


def place_in(service: Service, document_id: str) -> str:
    """Return how far a document has been read, as a person named it; "" for its end."""
    kept = service.store.measurements.newest(KIND, document_id, limit=1)
    return str(kept[0].values["page"]) if kept else ""


def place_of(service: Service, context: ContextRow) -> str:
    """Return the first place in the documents of a context, with the document's number: "2:118"; "" for none."""
    places = ((number, place_in(service, id)) for number, id in enumerate(context.document_ids, 1))
    return next((f"{number}:{page}" for number, page in places if page), "")


def known_pages(service: Service, context: ContextRow) -> str:
    """Return the pages of a context that its reader knows, see `pages_up_to`; "" for all."""
    place = place_of(service, context)
    return place and pages_up_to(place, context.document_ids, service.document_cache)
