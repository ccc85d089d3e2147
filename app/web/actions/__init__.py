"""Actions of the page: each takes the tab's selection and returns the new one, some with further updates.

An action that cannot be done raises, and `events.py` shows the sentence.
"""

from app.jobs.worker import Worker
from app.service import Service
from app.web.actions.ask import ChatActions
from app.web.actions.form import FormActions
from app.web.actions.manage import ManageActions
from app.web.actions.navigate import Navigation
from app.web.actions.offer import OfferActions
from app.web.actions.read import ReadingActions
from app.web.actions.sweep import SweepActions
from app.web.tab_state import TabState


class Actions:
    """All actions over one home, by subject."""

    def __init__(
        self,
        service: Service,
        worker: Worker,
        tab_state: TabState,
        setting_keys: list[tuple[str, str]],
        own: list[str],
        presets: list[str],
    ) -> None:
        """Make the actions; for the fields of the form see `FormActions`."""
        self.navigate = Navigation(service, tab_state)
        self.form = FormActions(service, worker, setting_keys, own, presets)
        self.read = ReadingActions(self.form)
        self.offer = OfferActions(self.form)
        self.ask = ChatActions(service, worker)
        self.sweep = SweepActions(service, worker)
        self.manage = ManageActions(service, tab_state)
