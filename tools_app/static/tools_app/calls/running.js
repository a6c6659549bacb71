// The page of a running call: polls for updates, and redirects to its record once it has finished.

import { eventRow } from "./events.js";
import { fetchJson, poll } from "./polling.js";

const MOST_ROWS = 1000;

const page = document.querySelector("[data-running]");
const part = (name) => page.querySelector(`[data-${name}]`);
const list = part("events");

async function look() {
  const after = list?.lastElementChild?.dataset.sequence ?? "0";
  const news = await fetchJson(`${page.dataset.running}?after=${after}`);
  if (news.ended) {
    part("notice").textContent = "The call has ended.";
    location.replace(news.ended);
    return false;
  }
  part("for").textContent = news.for;
  part("status").firstElementChild.textContent = news.status;
  if (news.cancelling) {
    part("notice").textContent = "Cancellation requested.";
    part("cancel")?.remove();
  }
  if (news.events.length) show(news.events);
  return true;
}

function show(events) {
  part("silent").hidden = true;
  const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  list.append(...events.map(eventRow));
  while (list.childElementCount > MOST_ROWS) list.firstElementChild.remove();
  if (isAtEnd) list.scrollTop = list.scrollHeight;
}

if (list) list.scrollTop = list.scrollHeight;
poll(look, (problem) => (part("notice").textContent = problem || "This page updates until the call ends."));
