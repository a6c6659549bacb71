// The live tail: polls about once a second and keeps the newest calls in a table.

import { h } from "../web/playground/dom.js";
import { fetchJson, poll } from "./polling.js";

const SUMMARY_EVERY = 5000;
const COLUMNS = ["at", "name", "says", "took", "tenant", "key", "client"];

const page = document.querySelector("[data-live]");
const part = (name) => page.querySelector(`[data-${name}]`);
const rows = part("rows");
const most = Number(page.dataset.most);
const hasTenant = !part("tenant").hidden;
const labels = [...part("list").querySelectorAll("th")].map((head) => head.textContent);

// By id: the rows shown, and the marks of running calls, shown or not.
let shown = new Map();
let running = new Map();
let cursor = "";
let today = "";
let isPaused = false;
let isPartial = false;
let generation = 0;
let summaryAt = -SUMMARY_EVERY;
const fresh = { calls: 0, bad: 0 };

async function look() {
  if (isPaused) return;
  const requested = generation;
  const query = filters();
  query.set("after", cursor);
  query.set("known", [...running.values()].join(","));
  const news = await fetchJson(`${page.dataset.live}?${query}`);
  // The filters changed or the tail was paused during the request.
  if (requested !== generation || isPaused) return;
  if (news.reset) begin();
  const isFirst = cursor === "";
  cursor = news.cursor;
  isPartial = news.partial;
  today = news.today;
  for (const call of news.calls) take(call, isFirst);
  for (const id of news.over) running.delete(id);
  prune();
  paint();
}

function filters() {
  const query = new URLSearchParams(new FormData(part("filters")));
  for (const [name, value] of [...query]) if (!value.trim()) query.delete(name);
  return query;
}

function begin() {
  shown = new Map();
  running = new Map();
  rows.replaceChildren();
  cursor = "";
}

function take(call, isFirst) {
  const before = shown.get(call.id);
  if (before && before.state === call.state) return;
  if (call.mark) running.set(call.id, call.mark);
  else running.delete(call.id);
  if (call.mark && filters().get("outcome")) return;
  if (!isFirst && !call.mark) {
    fresh.calls += 1;
    fresh.bad += call.bad ? 1 : 0;
  }
  const row = rowOf(call, isFirst);
  if (before) before.row.replaceWith(row);
  else place(call.id, row);
  shown.set(call.id, { state: call.state, row });
}

// Newest first: ids increase with time.
function place(id, row) {
  const next = [...rows.children].find((other) => other.dataset.id < id);
  rows.insertBefore(row, next ?? null);
}

function rowOf(call, isFirst) {
  // A value that is cut has the whole in its title.
  const cells = COLUMNS.map((name, at) =>
    h("td", { "data-label": labels[at], title: call[name], hidden: name === "tenant" && !hasTenant }, content(call, name)));
  const classes = [call.bad ? "live-bad" : "", isFirst ? "" : "live-new"].join(" ").trim();
  const isOpen = !call.mark && location.hash === `#call=${call.id}`;
  return h("tr", { "data-id": call.id, class: classes, "aria-current": isOpen ? "true" : null }, cells);
}

function content(call, name) {
  if (name === "name") {
    // The panel shows finished calls.
    return h("a", { href: call.url, class: "text-link", "data-call": call.mark ? null : call.id }, call.name);
  }
  if (name === "at") return h("time", {}, call.at.startsWith(today) ? call.at.slice(today.length) : call.at);
  if (name === "says") return h("span", { class: "live-label", "data-colour": call.colour }, call.says);
  return call[name];
}

function prune() {
  while (rows.childElementCount > most) {
    shown.delete(rows.lastElementChild.dataset.id);
    running.delete(rows.lastElementChild.dataset.id);
    rows.lastElementChild.remove();
  }
}

function paint() {
  part("list").hidden = !rows.childElementCount;
  part("empty").hidden = rows.childElementCount > 0;
}

function summarise() {
  if (isPaused) return;
  const text = [`${rows.childElementCount} shown`];
  if (running.size) text.push(`${running.size} running`);
  if (fresh.calls) text.push(`${fresh.calls} new${fresh.bad ? `, ${fresh.bad} of them failed` : ""}`);
  if (isPartial) text.push("more calls match than can be shown: choose a tenant or a tool");
  part("summary").textContent = `${text.join(" · ")}.`;
  fresh.calls = fresh.bad = 0;
}

function pause() {
  isPaused = !isPaused;
  part("pause").textContent = isPaused ? "Resume" : "Pause";
  if (isPaused) part("summary").textContent = "Paused.";
}

function choose() {
  generation += 1;
  summaryAt = -SUMMARY_EVERY;
  begin();
  history.replaceState(null, "", `?${filters()}${location.hash}`);
  part("summary").textContent = "Loading…";
}

part("pause").addEventListener("click", pause);
part("filters").addEventListener("change", choose);
part("filters").addEventListener("submit", (event) => {
  event.preventDefault();
  choose();
});
poll(async () => {
  await look();
  if (performance.now() - summaryAt < SUMMARY_EVERY || cursor === "") return;
  summaryAt = performance.now();
  summarise();
}, (problem) => {
  part("problem").textContent = problem;
  part("problem").hidden = !problem;
});
