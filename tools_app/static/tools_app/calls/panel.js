// The panel beside the list of calls and the live tail: the call of a row, opened by a click or the keyboard. The
// address remembers the open call, so that it can be reloaded and shared, even when no row shows it.

import { enhance } from "./enhance.js";

const PREFIX = "#call=";
// Only an id becomes part of an address.
const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const panel = document.getElementById("call-panel");
const body = panel.querySelector("[data-body]");
// The id of the open call, and the number of the newest request for one.
let shown = "";
let newest = 0;

// Of the page as it is now: the live tail adds and removes rows.
const links = () => [...document.querySelectorAll("a[data-call]")];
const idOf = (link) => link.dataset.call;
const linkOf = (id) => links().find((link) => idOf(link) === id);
const addressOf = (pattern, id) => pattern.replace(panel.dataset.noCall, id);
const say = (text) => {
  const line = document.createElement("p");
  line.textContent = text;
  line.setAttribute("role", "status");
  body.replaceChildren(line);
};

async function open(id, { focus = true } = {}) {
  const mine = ++newest;
  mark(id);
  panel.hidden = false;
  panel.querySelector("[data-page]").href = addressOf(panel.dataset.pageUrl, id);
  history.replaceState(null, "", PREFIX + id);
  linkOf(id)?.scrollIntoView({ block: "nearest" });
  if (focus) panel.focus({ preventScroll: true });
  say("Loading…");
  const problem = await load(id, mine);
  if (problem && mine === newest) say(problem);
}

// What went wrong, or nothing. A call that was asked for meanwhile wins.
async function load(id, mine) {
  let answer;
  try {
    answer = await fetch(addressOf(panel.dataset.panelUrl, id), { redirect: "manual" });
  } catch {
    return "The hub does not answer. Try again.";
  }
  if (answer.type === "opaqueredirect") return "Your login has expired. Reload the page to log in again.";
  if (answer.status === 404) return "There is no such call, or you cannot see it. Retention may have removed it.";
  if (!answer.ok) return `The call cannot be shown (${answer.status}). Open its page instead.`;
  const text = await answer.text();
  if (mine !== newest) return "";
  body.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
  enhance(body);
  body.scrollTop = 0;
  return "";
}

function mark(id) {
  linkOf(shown)?.closest("tr")?.removeAttribute("aria-current");
  shown = id;
  linkOf(shown)?.closest("tr")?.setAttribute("aria-current", "true");
}

function close() {
  const link = linkOf(shown);
  newest += 1;
  mark("");
  panel.hidden = true;
  body.replaceChildren();
  history.replaceState(null, "", location.pathname + location.search);
  link?.focus();
}

function move(by) {
  const ids = links().map(idOf);
  const at = ids.indexOf(shown);
  // From a call without a row, both keys go to the first one.
  const next = at < 0 ? ids[0] : ids[at + by];
  if (next) open(next);
}

const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]");
const isPlain = (event) => !(event.ctrlKey || event.metaKey || event.altKey || event.shiftKey);

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-call]");
  if (!link || !isPlain(event) || event.button) return;
  event.preventDefault();
  open(idOf(link));
});

document.addEventListener("keydown", (event) => {
  if (!isPlain(event) || isTyping(event.target)) return;
  if ((event.key === "j" || event.key === "k") && links().length) {
    move(event.key === "j" ? 1 : -1);
  } else if (panel.hidden) {
    return;
  } else if (event.key === "Escape") {
    close();
  } else if (event.key === "Enter" && (event.target === panel || event.target === document.body)) {
    location.assign(panel.querySelector("[data-page]").href);
  } else {
    return;
  }
  event.preventDefault();
});
panel.querySelector("[data-close]").addEventListener("click", close);
window.addEventListener("hashchange", restore);

function restore() {
  const wanted = location.hash.startsWith(PREFIX) ? location.hash.slice(PREFIX.length) : "";
  if (ID.test(wanted)) open(wanted, { focus: false });
}

restore();

// The number of matching calls comes later: counting must not delay the list.
const count = document.querySelector("[data-count]");
if (count) {
  const answer = await fetch(count.dataset.count, { redirect: "manual" });
  if (answer.ok) count.textContent = (await answer.json()).text;
}
