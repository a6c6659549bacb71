// The list of calls: a panel beside it with the call of a row, opened by a click or the keyboard, and the number of
// calls that match. The address remembers the open call, so that it can be reloaded and shared.

import { enhance } from "./enhance.js";

const PREFIX = "#call=";
const panel = document.getElementById("call-panel");
const body = panel.querySelector("[data-body]");
const links = [...document.querySelectorAll("a[data-call]")];
let shown = -1;
let asked = 0;

const idOf = (link) => link.dataset.call;
const say = (text) => {
  const line = document.createElement("p");
  line.textContent = text;
  line.setAttribute("role", "status");
  body.replaceChildren(line);
};

async function open(at, { focus = true } = {}) {
  const link = links[at];
  const mine = ++asked;
  mark(at);
  panel.hidden = false;
  panel.querySelector("[data-page]").href = link.href;
  history.replaceState(null, "", PREFIX + idOf(link));
  link.scrollIntoView({ block: "nearest" });
  if (focus) panel.focus({ preventScroll: true });
  say("Loading…");
  const problem = await load(link, mine);
  if (problem && mine === asked) say(problem);
}

// What went wrong, or nothing. A call that was asked for meanwhile wins.
async function load(link, mine) {
  let answer;
  try {
    answer = await fetch(`/admin/tools_app/call/${idOf(link)}/panel/`, { redirect: "manual" });
  } catch {
    return "The hub does not answer. Try again.";
  }
  if (answer.type === "opaqueredirect") return "Your login has expired. Reload the page to log in again.";
  if (answer.status === 404) return "This call is no longer there: it was removed by retention.";
  if (!answer.ok) return `The call cannot be shown (${answer.status}). Open its page instead.`;
  const text = await answer.text();
  if (mine !== asked) return "";
  body.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
  enhance(body);
  body.scrollTop = 0;
  return "";
}

function mark(at) {
  links[shown]?.closest("tr")?.removeAttribute("aria-current");
  shown = at;
  links[shown]?.closest("tr")?.setAttribute("aria-current", "true");
}

function close() {
  const link = links[shown];
  asked += 1;
  mark(-1);
  panel.hidden = true;
  body.replaceChildren();
  history.replaceState(null, "", location.pathname + location.search);
  link?.focus();
}

const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]");
const isPlain = (event) => !(event.ctrlKey || event.metaKey || event.altKey || event.shiftKey);

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-call]");
  if (!link || !isPlain(event) || event.button) return;
  event.preventDefault();
  open(links.indexOf(link));
});

document.addEventListener("keydown", (event) => {
  if (!isPlain(event) || isTyping(event.target) || !links.length) return;
  if (event.key === "j" || event.key === "k") {
    const next = shown + (event.key === "j" ? 1 : -1);
    if (links[next]) open(next);
  } else if (panel.hidden) {
    return;
  } else if (event.key === "Escape") {
    close();
  } else if (event.key === "Enter" && (event.target === panel || event.target === document.body)) {
    location.assign(links[shown].href);
  } else {
    return;
  }
  event.preventDefault();
});
panel.querySelector("[data-close]").addEventListener("click", close);
window.addEventListener("hashchange", restore);

function restore() {
  const wanted = location.hash.startsWith(PREFIX) ? location.hash.slice(PREFIX.length) : "";
  const at = links.findIndex((link) => idOf(link) === wanted);
  if (at >= 0) open(at, { focus: false });
}

restore();

// The number of matching calls comes later: counting must not delay the list.
const count = document.querySelector("[data-count]");
if (count) {
  const answer = await fetch(count.dataset.count, { redirect: "manual" });
  if (answer.ok) count.textContent = (await answer.json()).text;
}
