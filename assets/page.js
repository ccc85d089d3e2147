// The page's own script. Gradio draws the page anew piece by piece; what a person did there must outlast that.
(() => {
  const apply = () => {
    if (!document.body) return;
    const wanted = localStorage.getItem("stockpot-theme");
    if (wanted) document.body.classList.toggle("dark", wanted === "dark");
    document.documentElement.style.colorScheme = document.body.classList.contains("dark") ? "dark" : "light";
  };
  // Texts come in all languages with the script. The server has chosen the language: app/web/page_language.py.
  const texts = TEXTS[navigator.language] ?? {};
  const say = (text) => texts[text] ?? text;
  const reached = {};
  let shown = "", settled = "", placed = false, until = 0, height = 0, wheeled = -1e9;
  const folds = new Map();  // turns are drawn anew, one that is being answered at every tick: what was (un)folded stays so
  let pressed = null, noticed = "", held = null, byKey = false, found = "", reading = null;
  // What happens without being asked for just then is read out. It is there from the beginning, or its first words are
  // not heard.
  const teller = Object.assign(document.createElement("div"), { id: "teller", className: "sr", ariaLive: "polite" });
  const announce = (text) => teller.textContent = text;
  const unmarked = (answer) => {  // without the numbers of places
    const copy = answer?.cloneNode(true);
    for (const each of copy?.querySelectorAll(".cite") ?? []) each.remove();
    return copy?.textContent ?? "";
  };
  const inSight = (each) => each.getClientRects().length > 0;
  // What had the focus is gone, as a button is that was pressed: whoever uses the keyboard goes on with what comes next,
  // never with what stops or deletes something, and with a fold that was drawn anew where that is now.
  const NEXT = ".confirm .keep, #unlock-password input, #question textarea, #resume, #ask-early, #files button";
  const hold = () => {
    if (!byKey || !held || document.activeElement !== document.body || (held.isConnected && inSight(held))) return;
    const fold = held.matches("summary") ? CSS.escape(held.parentElement?.dataset.fold ?? "") : "";
    const again = fold && document.querySelector(`details[data-fold="${fold}"] > summary`);
    const next = again || [...document.querySelectorAll(NEXT)].find(inSight);
    if (next) held = null, next.focus({ preventScroll: true });
  };
  // What scrolls: the conversation, or on a phone the whole page, where it ends above the question field.
  const scroller = (talk) => getComputedStyle(talk).overflowY === "visible" ? document.scrollingElement : talk;
  const view = (talk) => {
    if (scroller(talk) === talk) return talk.getBoundingClientRect();
    return { top: 0, bottom: innerHeight - document.querySelector("#composer").offsetHeight };
  };
  const below = (talk) => scroller(talk) === talk  // pixels that are still to come
    ? talk.scrollHeight - talk.scrollTop - talk.clientHeight
    : talk.getBoundingClientRect().bottom - view(talk).bottom;
  // A finished turn is shown once from its question on, or a long one from the end of its answer: its sources, which
  // come last, may be longer than the window. After that nothing moves by itself.
  const settle = (talk) => {
    const last = talk?.querySelector("#past .turn:last-of-type");
    if (!last || !talk.clientHeight) return;
    const { top, bottom } = view(talk), turn = last.getBoundingClientRect();
    const said = (last.querySelector(".measured, .note") || last).getBoundingClientRect();
    if (last.id !== settled) {
      settled = last.id;
      if (last.id === shown)
        announce([unmarked(last.querySelector(".answer-text")), last.querySelector(".note")?.textContent].join(" "));
      const away = last.id === shown && talk.dataset.follow === "no";  // the reader has gone elsewhere meanwhile
      const seen = scroller(talk) !== talk && turn.top >= top && said.bottom <= bottom;
      until = away || seen ? 0 : performance.now() + 700;  // what stands above and below takes its room in steps
    }
    if (performance.now() > until) return;
    scroller(talk).scrollTop += Math.max(turn.top - 20 - top, said.bottom + 60 - bottom);
  };
  // What is typed and not asked yet is kept for its place, which is a session or the question that is being edited:
  // who goes elsewhere, comes back or reloads the page finds it again.
  const kept = (name, none) => JSON.parse(sessionStorage.getItem(`stockpot-${name}`)) ?? none;
  const store = (name, value) => sessionStorage.setItem(`stockpot-${name}`, JSON.stringify(value));
  const drafts = kept("drafts", {}), ofPages = (place) => `pages of ${place}`;
  let here = "", field = null, pages = null, met = "", writing = false;
  let asking = kept("asking", null);  // what is on its way: from which place, and the last turn before it
  const keep = (place, text) => {
    if (text) drafts[place] = text; else delete drafts[place];
    store("drafts", drafts);
  };
  const keepPages = (place, named) => {  // also that there are none: those of a question that is edited may be taken out
    if (named === undefined) delete drafts[ofPages(place)]; else drafts[ofPages(place)] = named;
    store("drafts", drafts);
  };
  const pinned = (named) => /(?:^|\s)\+.*$/.exec(named)?.[0].trim() ?? "";  // pages that stay for the next question
  const sent = (question) => store("asking", asking = question);
  let entered;  // at the press: Gradio takes the fields' texts a moment later, with what has been typed since
  const submit = () => {
    entered = field && { question: field.value, pages: pages.value };
    if (here) sent({ place: here, before: met, pages: pages.value });
  };
  // The question, and how to answer it, of which the last are the pages.
  window.stockpotEntered = (question, options) => {
    const now = entered ?? { question, pages: options.at(-1) };
    entered = undefined;
    return [now.question, ...options.slice(0, -1), now.pages];
  };
  // How to answer stays as it was left in this browser.
  window.stockpotLeft = (options) => localStorage.setItem("stockpot-answers", JSON.stringify(options));
  window.stockpotFound = (options) => {
    const left = JSON.parse(localStorage.getItem("stockpot-answers"));
    return left?.length === options.length ? left : options;
  };
  const write = (text, into = field) => {
    if (into.value === text) return;
    into.value = text;
    writing = true;  // not by a person
    into.dispatchEvent(new Event("input", { bubbles: true }));
    writing = false;
  };
  const arriving = () => (drafts[asking.place] || "").trimStart();
  // A question arrives where it was asked, or in a session that was begun for it: over its context, or with its edit.
  const arrived = ({ query, place, asked, said }) => asking && asked && asked !== asking.before && (
    asking.place === place || query.includes(asking.place) ||
    (asking.place.startsWith("t-") && arriving().startsWith(said)));
  const turnTo = (where) => {
    const { place, question, asked, said } = where;
    const now = document.querySelector("#question textarea"), fresh = now !== field;
    field = now;
    pages = document.querySelector("#pages")?.querySelector("input, textarea");
    if (!field || !pages || !place) return;
    if (arrived(where)) {  // what has arrived goes; what was typed after it stays, and comes along
      const text = arriving();
      const since = text.startsWith(said) ? text.slice(said.length).trimStart() : text;
      keep(asking.place, "");
      if (since) keep(place, since);
      if (place === here) write(since);
      const named = drafts[ofPages(asking.place)] ?? asking.pages;
      const left = named === asking.pages ? pinned(named) : named;
      keepPages(asking.place);
      if (left || named !== asking.pages) keepPages(place, left);
      if (place === here) write(left, pages);
      sent(null);
    }
    met = asked;
    if (place === here && !fresh) return;
    const opened = place !== here && !place.startsWith("t-");
    here = place;
    if (opened) offer();
    write(drafts[here] ?? question ?? "");
    write(drafts[ofPages(here)] ?? where.pages ?? "", pages);
  };
  // A chat that opens is there to be asked: the field has the focus, unless somebody is elsewhere with the keyboard, or
  // would get a keyboard on the glass.
  const offer = () => {
    const idle = document.activeElement === document.body || (!byKey && document.activeElement?.closest("#shelf"));
    if (idle && field && inSight(field) && !matchMedia("(pointer: coarse)").matches) field.focus({ preventScroll: true });
  };
  // What was left can be gone back to, but for an upload, which became a context.
  let passing = false;
  let leaving = false;  // after Back or Forward, until the page is loaded: what is drawn still belongs to the place before
  const place = ({ query, passes }) => {
    if (leaving) return;
    const before = new URLSearchParams(location.search), now = new URLSearchParams(query);
    const left = ["context", "session"].some((key) => before.get(key) && before.get(key) !== now.get(key));
    const push = placed && left && !passing;
    placed = true, passing = passes === "yes";
    if (query === location.search) return;
    history[push ? "pushState" : "replaceState"](null, "", location.pathname + query);
  };
  const bring = (label) => label?.scrollIntoView({ block: "nearest" });  // into sight, unless it is hidden altogether
  // Earlier turns come above what is shown, which stays where it is.
  let unrolled = null;  // where, how many were there, and how much lay below the upper edge
  const earlier = () => document.querySelectorAll("#earlier .turn").length;
  const unroll = () => {
    const { scrollHeight, scrollTop } = scroller(document.querySelector("#conversation"));
    unrolled = { here, turns: earlier(), below: scrollHeight - scrollTop };
  };
  const stay = (talk) => {
    if (unrolled?.here !== here) unrolled = null;
    if (!unrolled || !talk || earlier() <= unrolled.turns) return;
    scroller(talk).scrollTo({ top: scroller(talk).scrollHeight - unrolled.below, behavior: "instant" });
    unrolled = null;
  };
  const keepFolds = () => {
    for (const each of document.querySelectorAll(":is(#main, #side) details[data-fold]"))
      if (folds.has(each.dataset.fold) && each.open !== folds.get(each.dataset.fold)) each.open = !each.open;
  };
  // Why something could not be done stands below the question field or the button, as a new element, so that it is read
  // out. It stays until the same or something new is done, or it is closed; the rest leaves it the room `--trouble`.
  const trouble = Object.assign(document.createElement("div"), { id: "trouble" });
  let broken = null, brokenAt = 0;  // the event that failed, and when
  const tell = (said) => {
    const close = Object.assign(document.createElement("button"), { type: "button", textContent: "×" });
    Object.assign(close.dataset, { action: "untell" }), close.setAttribute("aria-label", say("Close"));
    said.append(close);
    trouble.replaceChildren(said);
    makeRoom();
  };
  const untell = () => { broken = null, trouble.replaceChildren(), document.documentElement.style.removeProperty("--trouble"); };
  const makeRoom = () => {
    if (!trouble.firstChild) return;
    const { left, width } = document.querySelector("#main")?.getBoundingClientRect() ?? { left: 0, width: innerWidth };
    Object.assign(trouble.style, { left: `${left}px`, width: `${width}px` });
    document.documentElement.style.setProperty("--trouble", `${trouble.offsetHeight}px`);
  };
  const renewNotice = () => {
    const notice = document.querySelector("#notice [data-at]"), at = notice?.dataset.at ?? "";
    if (at === noticed) return;
    noticed = at;
    if (notice?.dataset.told) announce(notice.dataset.told);
    if (notice?.role === "alert") broken = null, tell(notice.cloneNode(true)), notice.replaceChildren(); else untell();
  };
  // Each event of the page is a request. Gradio is silent where one fails.
  const fail = (event, sentence) => {
    const said = Object.assign(document.createElement("p"), { role: "alert", textContent: sentence });
    if (event === broken && trouble.innerText.startsWith(sentence)) return;  // as `look` says again and again
    tell(said);
    broken = event, brokenAt = performance.now();
  };
  const reasonOf = async (answer) => {
    try {
      return (await answer.clone().json()).error || say("This did not work: try again, or load the page anew.");
    } catch {
      return say("This did not work: try again, or load the page anew.");
    }
  };
  const begun = (event) => {  // whether a person began the event, not a timer, the drawing of the page or another event
    const { dependencies = [], components = [] } = window.gradio_config ?? {};
    const pulse = components.find((each) => each.props.elem_id === "pulse")?.id;
    const found = dependencies.find((each) => String(each.id) === event);
    return !found?.targets.some(([id, name]) => ["load", "tick", "change"].includes(name) || id === pulse);
  };
  let stirredAt = 0;
  const send = window.fetch.bind(window);
  // The events of a tab are sent one after another: a busy server may begin the later of two requests first. One whose
  // answer got lost holds the next up for a while.
  const HOLD_MS = 20000;
  let last = Promise.resolve();
  const sendInTurn = (to, how) => {
    const answer = Promise.race([last, new Promise((done) => setTimeout(done, HOLD_MS))]).then(() => send(to, how));
    last = answer.then(() => {}, () => {});
    return answer;
  };
  const ofTab = (event) => {  // others have no state
    const { dependencies = [], components = [] } = window.gradio_config ?? {};
    const inputs = dependencies.find((each) => String(each.id) === event)?.inputs ?? [];
    return components.some((each) => each.type === "state" && inputs.includes(each.id));
  };
  window.fetch = async (to, how) => {
    if (!String(to?.url ?? to).includes("/run/predict")) return send(to, how);
    const sentAt = stirredAt = performance.now();
    const event = String(how?.body).match(/"fn_index":(\d+)/)?.[1] ?? "";
    try {
      const answer = await (ofTab(event) ? sendInTurn : send)(to, how);
      if (!answer.ok) drawn = "", fail(event, await reasonOf(answer)); else if (broken !== null && (event === broken || (sentAt > brokenAt && begun(event)))) untell();
      return answer;
    } catch (error) {
      drawn = "";
      if (!leaving) fail(event, say("The server does not answer: try again once it does."));
      throw error;
    }
  };
  // The page is drawn anew when the store was written to, and every five minutes: some words go after a while. It is asked
  // about every second while something goes on here or there, and ever less often while nothing does and nobody is here.
  const LOOK_MS = 1000, IDLE_MS = 5000, HIDDEN_MS = 10000, QUIET_MS = 30000, STIR_MS = 10000, DRAW_MS = 300000;
  let drawn = "", drawnAt = 0, lookedAt = 0, metAt = 0;
  const meet = () => { metAt = performance.now(); };
  const look = async () => {
    const now = performance.now();
    const least = document.hidden ? HIDDEN_MS : now - stirredAt < STIR_MS ? LOOK_MS : IDLE_MS;
    const wait = Math.max(least, Math.min((now - Math.max(stirredAt, metAt)) / 4, QUIET_MS));
    if (leaving || now - lookedAt < wait - 100) return;
    lookedAt = now;
    try {
      const answer = await send("version");
      if (!answer.ok) return fail("version", await reasonOf(answer));
      const version = await answer.text(), pulse = document.querySelector("#pulse");
      if (broken === "version") untell();
      if (!pulse || (version === drawn && now - drawnAt < DRAW_MS)) return;
      drawn = version, drawnAt = now;
      pulse.click();
    } catch {
      if (!leaving) fail("version", say("The server does not answer: try again once it does."));
    }
  };
  const showConfirm = () => {  // which may lie outside of a low window
    for (const each of document.querySelectorAll(".confirm p:not([data-met])")) {
      each.dataset.met = "yes";
      each.closest(".confirm").scrollIntoView({ block: "nearest" });
    }
  };
  const setTitle = (query) => {
    const tab = document.querySelector("[data-tab]")?.dataset.tab ?? "Stockpot";
    const context = new URLSearchParams(query).get("context"), title = tab.match(/^\d+% · (.*)/s)?.[1];
    if (title) reading = { context, title };
    else if (reading?.context === context && reading.title === tab) announce(say("It has been read.")), reading = null;
    document.title = tab;
  };
  // What Gradio leaves unsaid: the names of lists, and what is folded. Lists are one stop of the Tab key each, in which
  // the arrows choose.
  const nameParts = () => {
    for (const list of ["method", "memory", "offered", "contexts", "sessions", "hits", "ocr"].map((id) => document.getElementById(id))) {
      if (!list) continue;
      for (const each of list.querySelectorAll("input[type=radio]"))
        if (each.name !== list.id) each.name = list.id;
      const label = list.querySelector("[data-testid=block-info]")?.textContent ?? "";
      if (list.ariaLabel !== label) list.ariaLabel = label;
    }
    for (const each of document.getElementsByClassName("label-wrap")) {
      const open = String(each.classList.contains("open"));
      if (each.ariaExpanded !== open) each.ariaExpanded = open;
    }
  };
  const tellHits = () => {
    const hits = document.querySelector("#hits"), many = hits?.querySelectorAll("label").length ?? 0;
    const label = hits?.ariaLabel ?? "";
    const told = many ? `${label}: ${many}` : label === say("Found") ? "" : label;  // on its way out it is empty
    if (told && told !== found) announce(told);
    found = told;
  };
  const bringChosen = () => {
    for (const list of ["contexts", "sessions"]) {
      const chosen = document.querySelector(`#${list} label.selected input`);
      const state = `${chosen?.value} ${!!document.querySelector("#sessions")}`;  // which takes room from the other
      if (!chosen || state === reached[list]) continue;
      reached[list] = state;
      bring(chosen.closest("label"));
    }
  };
  let owner = null;  // the context whose page is beside the chat
  const belong = (query) => {
    const context = new URLSearchParams(query).get("context") ?? "";
    if (owner !== null && owner !== context) closePage(), untell(), settled = "";
    owner = context;
  };
  const follow = () => {
    const talk = document.querySelector("#conversation"), live = document.querySelector("#live-turn .turn");
    const where = document.querySelector("#where [data-query]");
    if (where) belong(where.dataset.query), seek(where.dataset.found);
    if (live) {
      if (live.id !== shown) {
        shown = live.id;
        announce(say("Answering"));
        talk.dataset.follow = "yes";
        live.scrollIntoView({ block: "nearest" });
      }
      if (talk.dataset.follow !== "no") scroller(talk).scrollTop += Math.max(0, below(talk));
    } else settle(talk);
    stay(talk);
    if (folds.size) keepFolds();
    renewNotice();
    showConfirm();
    if (where) place(where.dataset), turnTo(where.dataset);
    setTitle(where?.dataset.query);
    nameParts();
    tellHits();
    makeRoom();
    hold();
    bringChosen();
  };
  // The turn that was searched for is gone to once, and marked for a moment; a page is opened beside the chat.
  let sought = "";
  const seek = (turn) => {
    if (turn.startsWith("documents/")) {
      if (turn !== sought && beside()) sought = turn, openPage(turn, document.querySelector("#hits"));
      return;
    }
    const there = document.getElementById(turn);
    if (turn === sought || (turn && !there)) return;
    sought = turn;
    if (!there) return;
    settled = document.querySelector("#past .turn:last-of-type")?.id, until = 0;
    there.scrollIntoView({ block: "start", behavior: "instant" });
    there.animate([{ backgroundColor: "var(--copper-wash)" }, { backgroundColor: "transparent" }], 3000);
  };
  const copy = async (button) => {
    const said = button.closest(".answer").querySelector(".answer-text"), before = button.textContent;
    const text = said.dataset.said ?? unmarked(said);
    try {
      await navigator.clipboard.writeText(button.dataset.cited ? `“${text.trim()}” (${button.dataset.cited})` : text);
      button.textContent = say("Copied");
    } catch {  // no clipboard without https, or not allowed: leave it selected
      getSelection().selectAllChildren(said);
      button.textContent = say("Selected: press Ctrl-C");
    }
    setTimeout(() => button.textContent = before, 2500);
  };
  // From a sentence to the place that it rested on.
  const cite = (button) => {
    const sources = button.closest(".answer").querySelector(".sources");
    const place = sources.querySelectorAll("li > details")[button.dataset.place - 1];
    for (const each of [sources, place]) each.open = true, folds.set(each.dataset.fold, true);
    place.scrollIntoView({ block: "center" });
    place.querySelector("summary").focus({ preventScroll: true });
  };
  // A page is named, beside those that are: the next question is about them.
  const name = (page) => {
    const typed = pages.value.trim(), pin = pinned(typed);
    const named = typed.slice(0, typed.length - pin.length).split(",").map((each) => each.trim()).filter(Boolean);
    if (!named.includes(page)) named.push(page);
    write(`${named.join(", ")} ${pin}`.trim(), pages);
    keepPages(here, pages.value);
    if (getComputedStyle(document.querySelector("#side")).position === "fixed") closePage();
    field.focus();
  };
  const suggest = (question) => {  // asked as if it had been typed; what was typed stays
    write(question);
    document.querySelector("#ask").click();
  };
  // A page of a document stands beside the answer; on a narrow window before it. It is fetched once it is asked for.
  const beside = () => document.querySelector("#beside .beside");
  let from = null, wanted = 0, zoom = Number(localStorage.getItem("stockpot-zoom")) || 1;
  const setZoom = (to) => {
    zoom = Math.min(3, Math.max(0.6, Math.round(to * 10) / 10));
    localStorage.setItem("stockpot-zoom", zoom);
    beside().style.setProperty("--zoom", zoom);
  };
  const closePage = () => {
    const panel = beside();
    if (!panel || panel.hidden) return false;
    panel.hidden = true;
    document.querySelector("#frame").dataset.page = "";
    if (from?.isConnected && inSight(from)) from.focus({ preventScroll: true });
    return true;
  };
  // The passage is marked on the printed page in one colour, which tells where to scroll to.
  const toMark = (picture, body) => {
    const canvas = document.createElement("canvas"), width = 300;
    const height = Math.round(width * picture.naturalHeight / picture.naturalWidth);
    Object.assign(canvas, { width, height });
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.drawImage(picture, 0, 0, width, height);
    const dots = pen.getImageData(0, 0, width, height).data;
    for (let row = 0; row < height; row++)
      for (let at = row * width * 4, seen = 0; at < (row + 1) * width * 4; at += 4) {
        seen += dots[at] > 225 && dots[at + 1] > 180 && dots[at + 1] < 225 && dots[at + 2] < 140;
        if (seen > 5) return body.scrollTop = picture.offsetTop + picture.clientHeight * row / height - body.clientHeight / 3;
      }
  };
  const drawPrinted = async (body) => {
    const picture = body.querySelector("img[data-from]");
    if (!picture) return;
    const status = picture.parentElement.querySelector("p");
    const fail = (sentence, lang = "") => {
      if (status) status.textContent = sentence, status.lang = lang || navigator.language;
      body.querySelector(".as-text").open = true;
    };
    try {
      const answer = await fetch(picture.dataset.from);
      if (!answer.ok) return fail((await answer.json()).error, "en");
      picture.onload = () => { picture.hidden = false; status.remove(); toMark(picture, body); };
      picture.src = URL.createObjectURL(await answer.blob());
    } catch {
      fail(say("The server does not answer: try again once it does."));
    }
  };
  const openPage = async (href, by) => {
    const panel = beside(), body = panel.querySelector(".page-body"), url = new URL(href, location.href);
    const turn = ++wanted;
    if (panel.hidden) from = by;
    let shown;
    try {
      shown = await (await fetch(`${url.pathname}/beside${url.search}`)).text();
    } catch {
      shown = `<p class="note failed" role="alert">${say("The server does not answer: try again once it does.")}</p>`;
    }
    if (turn !== wanted) return;
    body.innerHTML = shown;
    panel.hidden = false;
    document.querySelector("#frame").dataset.page = "open";
    panel.querySelector(".own-tab").href = href;
    setZoom(zoom);
    body.scrollTop = 0;
    document.querySelector("#side").scrollTop = 0;
    body.querySelector("h2")?.focus({ preventScroll: true });
    const mark = body.querySelector(":scope > .page-text mark");
    if (mark) body.scrollTop = mark.offsetTop - body.clientHeight / 3;
    drawPrinted(body);
  };
  const KEYS = [["/", say("to the question")], [say("Enter"), say("ask")], [`${say("Ctrl")} .`, say("stop the answer")],
    [`${say("Ctrl")} K`, say("search")], [`${say("Ctrl")} ${say("Shift")} O`, say("a new chat")],
    [`${say("Shift")} ${say("Enter")}`, say("a new line")],
    [say("Esc"), say("close what is open, stop editing")], [say("Tab"), say("to what comes next")],
    ["↑ ↓", say("choose in a list")], [`? ${say("or")} ${say("Ctrl")} /`, say("this list")]];
  const showKeys = () => {
    let dialog = document.querySelector("#keys");
    if (!dialog) {
      dialog = Object.assign(document.createElement("dialog"), { id: "keys" });
      dialog.setAttribute("aria-label", say("Keys"));
      dialog.innerHTML = `<h2>${say("Keys")}</h2><dl>${KEYS.map(([key, does]) => `<dt><kbd>${key}</kbd></dt><dd>${does}</dd>`).join("")}
        </dl><form method="dialog"><button>${say("Close")}</button></form>`;
      document.querySelector(".gradio-container").append(dialog);
    }
    if (!dialog.open) dialog.showModal();
  };
  // Keys that work in the question field too; on a Mac with the command key.
  const WITH_CTRL = {
    "/": () => showKeys(),
    ".": () => press("#stop"),
    "k": () => (menu(true), document.querySelector("#search :is(input, textarea)")?.focus()),
    "O": () => press("#new-session") || press("#new-reading"),
  };
  const press = (name) => {
    const button = document.querySelector(name);
    if (button && inSight(button)) return button.click(), true;
  };
  // What is unfolded above the question field; one at a time, and none once something else is pressed.
  const unfolded = (but) => [...document.querySelectorAll("#folds .label-wrap.open")].filter((each) => !but?.contains(each));
  const answerNo = () => {  // to a question before something is deleted
    const asked = [...document.querySelectorAll(".confirm .keep")].filter((keep) => keep.offsetParent);
    return asked.map((keep) => keep.click()).length > 0;
  };
  const foldUp = (but) => unfolded(but).map((each) => each.click()).length > 0;
  const gear = (button) => {
    const box = document.querySelector("#composer"), open = box.dataset.more !== "open";
    box.dataset.more = open ? "open" : "";
    button.setAttribute("aria-expanded", String(open));
  };
  const menu = (open) => {
    document.querySelector("#frame").dataset.menu = open ? "open" : "";
    document.querySelector("[data-action=menu]")?.setAttribute("aria-expanded", String(open));
    if (open) bring(document.querySelector("#contexts label.selected"));
  };
  // Told by the click, not by the element's own "toggle", which comes late: by then it may have been drawn anew. Where
  // that happens between press and release, there is no click.
  const foldAt = (element) => element.closest("details[data-fold] > summary")?.parentElement;
  const fold = (each) => folds.set(each.dataset.fold, !each.open);
  const release = (event) => {
    const there = foldAt(event.target);
    if (!there || there === pressed || there.dataset.fold !== pressed?.dataset.fold) return;
    fold(there);
    there.open = !there.open;
  };
  const start = () => {
    apply();
    document.body.append(teller);
    document.body.append(trouble);
    document.addEventListener("focusin", (event) => { held = event.target; });
    document.addEventListener("pointerdown", () => { byKey = false, held = null; }, true);
    document.addEventListener("keydown", (event) => {
      byKey = true;
      // Gradio opens a list again that is left with Tab, and it covers what comes next.
      if (event.key === "Tab" && event.target.matches("input[role=combobox]")) event.stopPropagation();
    }, true);
    document.addEventListener("pointerdown", (event) => { pressed = foldAt(event.target); });
    document.addEventListener("pointerup", release);
    document.addEventListener("click", (event) => {
      const folded = foldAt(event.target);
      if (folded) fold(folded);
      const button = event.target.closest("[data-action]");
      if (button && button.dataset.action === "theme") {
        const next = document.body.classList.contains("dark") ? "light" : "dark";
        localStorage.setItem("stockpot-theme", next);
        apply();
      }
      if (button && button.dataset.action === "copy") copy(button);
      if (button && button.dataset.action === "cite") cite(button);
      if (button && button.dataset.action === "suggested") suggest(button.textContent);
      if (button && button.dataset.action === "name") name(button.dataset.pages);
      if (button && button.dataset.action === "edit") document.querySelector("#question textarea").focus();
      const page = event.target.closest("a[href*='documents/'][href*='/pages/']:not(.own-tab)");
      if (page && !event.ctrlKey && !event.metaKey && !event.shiftKey && beside()) {
        event.preventDefault();
        openPage(page.getAttribute("href"), page);
      }
      if (button && button.dataset.action === "page") openPage(button.dataset.href, button);
      if (button && button.dataset.action === "page-back") closePage();
      if (button && button.dataset.action === "zoom-in") setZoom(zoom + 0.2);
      if (button && button.dataset.action === "zoom-out") setZoom(zoom - 0.2);
      if (button && button.dataset.action === "keys") showKeys();
      if (button && button.dataset.action === "untell") untell();
      if (button && button.dataset.action === "gear") gear(button);
      if (event.isTrusted && event.target.isConnected) foldUp(event.target.closest("#sampling, #manage"));
      if (button && button.dataset.action === "menu") menu(document.querySelector("#frame").dataset.menu !== "open");
      if (event.target.closest("#new-reading, #new-session, #add-documents")) menu(false);
      if (event.target.closest("#unroll")) unroll();
    });
    document.addEventListener("pointerover", (event) => {  // what a list has no room for
      const name = event.target.closest(".list label span");
      if (name) name.title = name.scrollWidth > name.clientWidth ? name.textContent : "";
    });
    // Before Gradio hears of them.
    document.addEventListener("click", (event) => { if (event.target.closest("#ask")) submit(); }, true);
    document.addEventListener("keypress", (event) => {
      if (event.key === "Enter" && !event.shiftKey && event.target.closest("#question, #pages")) submit();
    }, true);
    addEventListener("popstate", () => { leaving = true; location.reload(); });
    addEventListener("pagehide", () => { leaving = true; });
    addEventListener("pageshow", () => { leaving = false; });
    addEventListener("resize", makeRoom);
    document.addEventListener("change", (event) => {  // arrow keys choose on their way through a list
      if (!byKey && event.target.closest("#shelf .list")) menu(false);
      if (event.target.closest("#hits")) sought = "";  // the same once more
    });
    document.addEventListener("input", (event) => {
      if (!writing && here && event.target.closest("#question")) keep(here, event.target.value);
      if (!writing && here && event.target.closest("#pages")) keepPages(here, event.target.value);
    });
    const leave = () => {  // before it scrolls up: what comes meanwhile would undo it
      const talk = document.querySelector("#conversation");
      if (talk) talk.dataset.follow = "no", until = 0, wheeled = performance.now();
    };
    document.addEventListener("wheel", (event) => { if (event.deltaY < 0) leave(); }, { passive: true });
    document.addEventListener("scroll", (event) => {
      const talk = document.querySelector("#conversation"), box = talk && scroller(talk);
      if (!box || event.target !== (box === talk ? talk : document)) return;
      if (box.scrollTop < height) talk.dataset.follow = "no";  // by the reader: what follows only goes down
      else if (below(talk) < 80 && performance.now() > wheeled + 300) talk.dataset.follow = "yes";
      height = box.scrollTop;
    }, true);
    document.addEventListener("keydown", (event) => {
      const typing = event.target.matches("textarea, select, input:not([type=radio], [type=checkbox])");
      if (["PageUp", "ArrowUp", "Home"].includes(event.key) && !event.target.closest("input, textarea, select")) leave();
      const listed = event.target.matches("[role=combobox][aria-expanded=true]");  // whose list it closes
      if (document.querySelector("#keys[open]")) return;
      if ((event.ctrlKey || event.metaKey) && WITH_CTRL[event.key]) {
        event.preventDefault();
        return WITH_CTRL[event.key]();
      }
      if (event.key === "Escape" && !listed && !answerNo() && !foldUp() && !closePage()) {  // the innermost, alone
        menu(false);
        document.querySelector("#edit-area #never-mind")?.click();
      }
      if (event.key === "?" && !typing) { event.preventDefault(); showKeys(); }
      if (event.key === "/" && !typing) {
        const field = document.querySelector("#question textarea");
        if (field) { event.preventDefault(); field.focus(); }
      }
    });
    for (const sign of ["pointermove", "pointerdown", "keydown", "wheel", "focus"])
      addEventListener(sign, meet, { capture: true, passive: true });
    setInterval(look, LOOK_MS);
    document.addEventListener("visibilitychange", () => { lookedAt = 0; look(); });
    new MutationObserver(follow).observe(document.body, {
      childList: true, subtree: true, characterData: true, attributes: true,
      attributeFilter: ["data-query", "data-at", "data-menu", "class"] });
  };
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", start) : start();
})();
