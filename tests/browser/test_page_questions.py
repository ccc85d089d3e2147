"""Questions on the page: typed, edited, asked, followed and stopped, without loss."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from sessions import Store
from tests.app.helpers import Server, book_text
from tests.app.tiny import make_tiny_model
from tests.browser.helpers import ask, asked, drawn, requests_of, visit

pytestmark = pytest.mark.browser


def test_an_edited_question_is_asked_in_a_session_of_its_own(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    session = asked(server, reading, "Who kept the lamp?", "When was it built?")
    tab.set_viewport_size({"width": 390, "height": 800})
    visit(tab, server, f"?context={reading['id']}&session={session}")
    first, line, field = tab.locator("#past .turn").first, tab.locator("#edit-line"), tab.locator("#question textarea")
    edit = first.get_by_role("button", name="Edit question 1")
    edit.focus()
    edit.press("Enter")
    expect(line).to_have_text("This starts a new chat from question 1. The old chat stays as it is.")
    expect(field).to_have_value("Who kept the lamp?")
    expect(field).to_be_focused()
    assert tab.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    field.press("Escape")
    expect(line).to_be_hidden()
    expect(field).to_have_value("")
    edit.click()
    expect(field).to_have_value("Who kept the lamp?")
    field.fill("Who kept the diary?")
    field.press("Enter")
    expect(tab.locator("#past .question")).to_have_text(["Who kept the diary?"])
    expect(line).to_be_hidden()
    expect(tab).not_to_have_url(re.compile(f"session={session}"))
    old = server.get(f"/api/sessions/{session}/turns")
    assert [turn["question"] for turn in old] == ["Who kept the lamp?", "When was it built?"]


def test_a_failed_event_says_so_above_the_field_and_loses_nothing(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    """*Ask* fell silent after *How to answer* and *New document*: empty fields had become 0, which Gradio refused."""
    session = asked(server, reading, "Who kept the lamp?")
    visit(tab, server, f"?context={reading['id']}&session={session}")
    tab.get_by_role("button", name="How to answer").click()
    expect(tab.locator("#temperature :is(input, textarea)")).to_be_visible()
    follows = requests_of(tab, "new-reading", "click")[-1]
    failed: set[str] = set()
    late: list[Route] = []

    def once(route: Route) -> None:
        event = re.findall(r'"fn_index":(\d+)', route.request.post_data or "")[0]
        if follows in (route.request.post_data or ""):
            return late.append(route)
        if "Who was Renn?" not in (route.request.post_data or "") or event in failed:
            return route.continue_()
        failed.add(event)
        return route.fulfill(status=500, content_type="application/json", body='{"error": "Planted."}')

    tab.route(re.compile("/run/predict"), once)
    with tab.expect_request(lambda request: follows in (request.post_data or "")):
        tab.locator("#new-reading").click()
    expect(tab.locator("#hello")).to_be_visible()
    expect(tab).to_have_url(re.compile("new=1"))  # the server has answered
    tab.locator("#contexts label").first.click()
    expect(tab).to_have_url(re.compile("context="))
    field, trouble = tab.locator("#question textarea"), tab.locator("#trouble [role=alert]")
    for press in (lambda: tab.locator("#ask").click(), lambda: field.press("Enter")):
        field.fill("Who was Renn?")
        with tab.expect_response(lambda answer: answer.status == 500):  # the sentence may be that of the press before
            press()
        expect(trouble).to_contain_text("Planted.")
        while late:  # what was under way before the failure says nothing about it
            with tab.expect_event("requestfinished", lambda request: follows in (request.post_data or "")):
                late.pop().continue_()
            tab.wait_for_timeout(100)
        expect(trouble).to_contain_text("Planted.")
        expect(field).to_have_value("Who was Renn?")
        tab.wait_for_function(
            "gap = document.querySelector('#trouble p')?.getBoundingClientRect().top"
            " - document.querySelector('#composer').getBoundingClientRect().bottom, 0 <= gap && gap < 20"
        )
    tab.locator("#ask").click()
    expect(tab.locator("#past .question").last).to_have_text("Who was Renn?")
    expect(trouble).to_have_count(0)
    expect(field).to_have_value("")


def test_pages_are_named_for_one_question(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """Pages come from the field, from a place under an answer, or from the edited question."""
    session = asked(server, reading, "Who kept the lamp?")
    visit(tab, server, f"?context={reading['id']}&session={session}")
    field, pages = tab.locator("#question textarea"), tab.get_by_label("Answer from these pages only")
    pages.fill("9")
    field.fill("Who was Tobias Renn?")
    pages.press("Enter")
    expect(tab.locator("#trouble [role=alert]")).to_contain_text("There is no section 9, only 1 section.")
    expect(pages).to_have_value("9")
    expect(field).to_have_value("Who was Tobias Renn?")
    pages.fill("")
    tab.get_by_role("button", name="Ask about this place").first.click()
    expect(field).to_be_focused()
    expect(pages).to_have_value(re.compile(r"^1/\d+-\d+$"))
    named = pages.input_value()
    field.press("Enter")
    last = tab.locator("#past .turn").nth(1)
    expect(last).to_contain_text(f"page {named} read again")
    expect(pages).to_have_value("")
    last.get_by_role("button", name="Edit question 2").click()
    expect(pages).to_have_value(named)
    expect(field).to_have_value("Who was Tobias Renn?")
    tab.locator("#never-mind").click()
    expect(pages).to_have_value("")
    expect(field).to_have_value("")


def test_pages_to_keep_in_view_stay_for_the_chat(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    session = asked(server, reading, "Who kept the lamp?")
    visit(tab, server, f"?context={reading['id']}&session={session}")
    field, pages = tab.locator("#question textarea"), tab.get_by_label("Answer from these pages only")
    pages.fill("+1/2")
    tab.get_by_role("button", name="Ask about this place").first.click()
    expect(pages).to_have_value(re.compile(r"^1/\d+-\d+ \+1/2$"))
    field.fill("Who was Tobias Renn?")
    field.press("Enter")
    expect(tab.locator("#past .turn").nth(1)).to_contain_text(" + page 1/2 read again")
    expect(pages).to_have_value("+1/2")


def test_pages_stay_with_the_question_they_were_typed_for(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """Pages of one session went along to another, and pages for the next question went with the last one."""
    first, second = (asked(server, reading, question) for question in ("Who built it first?", "Who kept it then?"))
    visit(tab, server, f"?context={reading['id']}&session={first}")
    field, pages = tab.locator("#question textarea"), tab.get_by_label("Answer from these pages only")
    pages.fill("1/2-3")
    tab.locator("#sessions").get_by_text("Who kept it then?").click()
    expect(tab).to_have_url(re.compile(f"session={second}"))
    expect(pages).to_have_value("")
    tab.locator("#sessions").get_by_text("Who built it first?").click()
    expect(pages).to_have_value("1/2-3")
    tab.reload()
    drawn(tab)
    expect(pages).to_have_value("1/2-3")
    with server.held_back():
        ask(tab, "Who wrote a diary?", 4000)
        pages.fill("1/4")
        expect(tab.locator("#live-turn .question")).to_have_text("Who wrote a diary?")
        expect(pages).to_have_value("1/4")
        tab.locator("#stop").click()
        stopped = tab.locator("#past .turn.cancelled")
        expect(stopped).to_be_visible()
        stopped.get_by_role("button", name="Edit question 2").click()
        expect(pages).to_have_value("1/2-3")
        expect(field).to_have_value("Who wrote a diary?")
        pages.fill("")
        tab.locator("#never-mind").click()
        expect(pages).to_have_value("1/4")
        stopped.get_by_role("button", name="Edit question 2").click()
        expect(pages).to_have_value("")


def test_nothing_that_was_typed_is_lost(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """Edit, Never mind, another session and a reload each cleared the field."""
    sessions = [asked(server, reading, question) for question in ("Who was Maren Hollis?", "Who slept under a boat?")]
    visit(tab, server, f"?context={reading['id']}&session={sessions[0]}")
    field, edit = tab.locator("#question textarea"), tab.get_by_role("button", name="Edit question 1")
    field.fill("A draft, and")
    edit.click()
    expect(field).to_have_value("Who was Maren Hollis?")
    field.fill("Who was Tobias Renn?")
    tab.locator("#never-mind").click()
    expect(field).to_have_value("A draft, and")
    edit.click()
    expect(field).to_have_value("Who was Tobias Renn?")
    tab.locator("#sessions").get_by_text("Who slept under a boat?").click()
    expect(field).to_have_value("")
    field.fill("Something else")
    tab.reload()
    drawn(tab)
    expect(field).to_have_value("Something else")
    tab.locator("#sessions").get_by_text("Who was Maren Hollis?").click()
    expect(field).to_have_value("A draft, and")

    # Typed while a question is on its way, and while its answer comes.
    with server.held_back():
        ask(tab, "Tell me everything.", 4000)
        field.press("End")
        field.type(" And then?")
        then = re.compile(r"^ ?And then\?$")  # the blank stays if the question had arrived already
        expect(tab.locator("#live-turn .question")).to_have_text("Tell me everything.")
        expect(field).to_have_value(then)
        field.press("Enter")  # refused as long as the other is being answered
        expect(tab.locator("#trouble [role=alert]")).to_contain_text("still being answered")
        expect(field).to_have_value(then)
        tab.locator("#stop").click()
        expect(tab.locator("#past .turn.cancelled")).to_be_visible()
        expect(field).to_have_value(then)
        field.press("Enter")
        expect(field).to_have_value("")
        expect(tab.locator(".question").last).to_have_text("And then?")
        tab.locator("#stop").click()


def test_what_is_asked_is_what_stood_there_at_the_press(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """The first letters of the next text went along with the question."""
    session = asked(server, reading)
    visit(tab, server, f"?context={reading['id']}&session={session}")
    field = tab.locator("#question textarea")
    field.fill("Who kept the lamp?")
    with server.held_back():
        field.evaluate("""field => {
            for (const kind of ["keydown", "keypress"])
                field.dispatchEvent(new KeyboardEvent(kind, { key: "Enter", bubbles: true, cancelable: true }));
            field.value += " And then?";
            field.dispatchEvent(new Event("input", { bubbles: true }));
        }""")
        expect(tab.locator("#live-turn .question")).to_have_text("Who kept the lamp?")
        expect(field).to_have_value("And then?")
        tab.locator("#stop").click()


def test_a_question_that_is_too_long_is_refused_and_stays(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """It was cut without a message, and the rest was answered."""
    session = asked(server, reading)
    visit(tab, server, f"?context={reading['id']}&session={session}")
    field = tab.locator("#question textarea")
    field.fill("why " * 6000)
    field.press("Enter")
    expect(tab.locator("#trouble [role=alert]")).to_contain_text("at most 20,000 can be asked")
    expect(field).to_have_value("why " * 6000)
    assert server.get(f"/api/sessions/{session}/turns") == []


def test_a_question_that_arrived_while_the_page_was_reloaded_does_not_stay_in_the_field(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    """A new tab knew nothing of the question on its way."""
    session = asked(server, reading, "Who was Maren Hollis?")
    visit(tab, server, f"?context={reading['id']}&session={session}")
    field = tab.locator("#question textarea")
    tab.route("**/run/**", lambda route: route.fetch())  # it reaches the server, and nothing comes back
    field.fill("Who kept the lamp?")
    field.press("Enter")
    while len(server.get(f"/api/sessions/{session}/turns")) < 2:
        tab.wait_for_timeout(100)
    expect(field).to_have_value("Who kept the lamp?")
    tab.unroute_all(behavior="ignoreErrors")
    tab.reload()
    expect(tab.locator(".question").last).to_have_text("Who kept the lamp?")
    expect(field).to_have_value("")


@pytest.mark.parametrize("again", ["Enter", "Ask"])
def test_what_is_typed_after_a_question_stays_even_if_it_is_sent_too_early(
    tab: Page, server: Server, reading: dict[str, Any], again: str
) -> None:
    """Enter before the first question had arrived made the tab forget where that question ended."""
    session = asked(server, reading, "Who was Maren Hollis?")
    visit(tab, server, f"?context={reading['id']}&session={session}")
    field, held = tab.locator("#question textarea"), []
    tab.route("**/run/**", lambda route: held.append(route))  # nothing reaches the server
    field.fill("Tell me everything.")
    field.press("Enter")
    field.press("End")
    field.type(" And then?")
    if again == "Enter":
        field.press("Enter")
    else:
        tab.locator("#ask").click()
    tab.wait_for_timeout(300)
    with server.held_back():  # or the other question would be early no more
        for route in held:  # in the order sent, which separate connections do not keep
            route.continue_()
            route.request.response()  # until the server has taken it
        tab.unroute("**/run/**")  # and the held requests go on too
        expect(tab.locator(".question").last).to_have_text("Tell me everything.")
        expect(field).to_have_value("And then?")
    tab.reload()
    drawn(tab)
    expect(field).to_have_value("And then?")
    field.fill("")
    expect(tab.locator("#past .turn")).to_have_count(2)
    assert [turn["question"] for turn in server.get(f"/api/sessions/{session}/turns")][1:] == ["Tell me everything."]


@pytest.mark.parametrize("width", [390, 1440])
def test_an_answer_is_followed_unless_the_reader_has_gone_up(
    tab: Page, server: Server, reading: dict[str, Any], width: int
) -> None:
    """Regression: the page stayed where it was on a phone, which scrolls the whole of it."""
    session = asked(server, reading, "Who kept the lamp?", tokens=64)
    tab.set_viewport_size({"width": width, "height": 520})
    visit(tab, server, f"?context={reading['id']}&session={session}")
    question = {"question": "Go on.", "max_tokens": 20_000}  # until it is stopped
    top = "document.querySelector('#past .turn').getBoundingClientRect().top"
    follow = "document.querySelector('#conversation').dataset.follow"
    shown = """() => {
        const end = document.querySelector("#live-turn .answer-text")?.getBoundingClientRect().bottom;
        const room = innerHeight - document.querySelector("#composer").offsetHeight;
        return end && end <= room + 4 && end > room - 120;  // it has come to the end of the room, and not beyond
    }"""

    def grown(letters: int) -> None:
        said = len(tab.locator("#live-turn .answer-text").inner_text())
        tab.wait_for_function(
            f"document.querySelector('#live-turn .answer-text').textContent.length > {said + letters}"
        )

    with server.held_back():
        turn = server.send(f"/api/sessions/{session}/turns", question)
        tab.wait_for_function(shown)
        grown(150)
        tab.wait_for_function(shown)
        tab.mouse.move(width / 2, 200)
        for _ in range(20):  # a late notch on a busy machine may be less than the new text
            tab.mouse.wheel(0, -300)
            tab.wait_for_timeout(200)
            if not tab.evaluate(shown):
                break
        assert tab.evaluate(follow) == "no"
        before = None
        while before != (before := tab.evaluate(top)):  # it goes up in steps, which a busy machine takes late
            tab.wait_for_timeout(1000)
        grown(100)
        assert tab.evaluate(top) == before
        while tab.evaluate(follow) != "yes":  # to the end, no further
            tab.mouse.wheel(0, 60)
            tab.wait_for_timeout(50)
        tab.wait_for_function(shown)
        grown(100)
        tab.wait_for_function(shown)
        server.send(f"/api/turns/{turn['id']}/cancel")  # on a busy machine it may have ended by itself
        server.answered(turn["id"])


def test_two_tabs_show_the_same_answer_and_one_can_stop_it(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    session = server.send("/api/sessions", {"context": reading["id"]})["id"]
    other = tab.context.new_page()
    for each in (tab, other):
        visit(each, server, f"?context={reading['id']}&session={session}")
    with server.held_back():
        ask(tab, "Tell me everything.", 4000)
        expect(other.locator("#live-turn .answer-text")).not_to_be_empty()
        other.locator("#stop").click()
        for each in (tab, other):
            expect(each.locator("#past .turn.cancelled")).to_be_visible()
            expect(each.locator("#past")).to_contain_text("Stopped.")
            expect(each.locator("#ask")).to_be_visible()
    assert [turn["status"] for turn in server.get(f"/api/sessions/{session}/turns")] == ["cancelled"]
    other.close()


def test_reasoning_is_folded_and_stays_unfolded_while_it_grows(
    tab: Page, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    thinker = make_tiny_model(tmp_path_factory.mktemp("thinking") / "thinker", thinking=True)
    reading = server.read(("Thoughts.txt", book_text(5).encode()), model=str(thinker), method="exact", budget="320")
    visit(tab, server, f"?context={reading['id']}")
    tab.get_by_role("button", name="How to answer").click()
    tab.locator("#reason input").check()
    with server.held_back():
        ask(tab, "What is there?", 4000)  # this model reasons until the end
        live = tab.locator("#live-turn .reasoning")
        expect(live.locator("summary")).to_contain_text("Reasoning")
        expect(live.locator("p")).to_be_hidden()
        live.locator("summary").click()
        before = len(live.locator("p").inner_text())
        tab.wait_for_function(f"document.querySelector('#live-turn .reasoning p').textContent.length > {before + 50}")
        expect(live.locator("p")).to_be_visible()  # drawn anew many times since
        tab.locator("#stop").click()
        past = tab.locator("#past .turn .reasoning")
        expect(past.locator("p")).to_be_visible()
    # Drawn anew at the worst of times: right after the click that folds it, and between press and release.
    draw = """() => { const turn = document.querySelector("#past .answer");
        turn.innerHTML = turn.innerHTML.replace(/ (open|data-met)="[^"]*"/g, ""); }"""
    tab.evaluate(f"document.querySelector('#past .reasoning summary').click(); ({draw})()")
    expect(past.locator("p")).to_be_hidden()
    past.locator("summary").hover()
    tab.mouse.down()
    tab.evaluate(draw)
    tab.mouse.up()
    expect(past.locator("p")).to_be_visible()


def test_the_number_behind_a_sentence_leads_to_the_place(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """Markdown is rendered, and copied as written."""
    [document] = reading["documents"]
    place = {"document": document["id"], "quote": "The lamp.", "weight": 0.3, "focus": [0, 3], "start": 0, "end": 9}
    said = "**It is lit.**\n- It was dark.\n- <b id=evil>So</b>"
    store = Store(server.home)
    session = store.sessions.add(reading["id"], "Numbers").id
    turn = store.turns.add(session, "Is it lit?")
    measured = {
        "time_to_first_token_seconds": 0.1,
        "tokens_per_second": 50.0,
        "answer_tokens": 12,
        "citations": [{"start": 0, "end": 14, "source": 1}, {"start": 14, "end": 29, "source": 0}],
    }
    sources = [{**place, "page": 1, "place": f"paragraph {number}"} for number in (3, 9)]
    store.turns.finish(turn.id, answer=said, sources=sources, measurements=measured)
    store.close()
    visit(tab, server, f"?context={reading['id']}&session={session}")
    answer = tab.locator("#past .answer-text")
    expect(answer.locator("strong")).to_have_text("It is lit.")
    expect(answer.locator("li")).to_have_count(2)
    assert tab.locator("#evil").count() == 0
    expect(answer).to_have_attribute("data-said", said)
    second = tab.locator("#past .sources li > details").nth(1)
    expect(second).not_to_have_attribute("open", "")
    answer.get_by_role("button", name="The model looked most at paragraph 9").click()
    expect(second).to_have_attribute("open", "")
    expect(second.locator("summary")).to_be_focused()
