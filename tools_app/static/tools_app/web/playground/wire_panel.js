// The messages on the wire, in order; a click expands a message.

import { copyButton, h, pretty } from "./dom.js";

const MOST = 500;
const ARROWS = { request: "→", response: "←", event: "←" };
const WORDS = { request: "sent", response: "received", event: "event" };
const SHORTENED = 8;

export class WirePanel {
  constructor(list, counter) {
    Object.assign(this, { list, counter, entries: [], began: performance.now() });
  }

  clear() {
    this.entries = [];
    this.began = performance.now();
    this.list.replaceChildren();
    this.#count();
  }

  add(entry) {
    const at = Math.round(performance.now() - this.began);
    this.entries.push(entry);
    this.list.append(line(entry, at));
    if (this.list.children.length > MOST) this.list.firstElementChild.remove();
    this.#count();
  }

  #count() {
    this.counter.textContent = String(this.entries.length);
  }
}

function line(entry, at) {
  const look = entry.status < 400 ? "pg-good" : "pg-bad";
  const status = entry.status ? h("span", { class: look }, `HTTP ${entry.status}`) : null;
  const summary = h("summary", {},
    h("span", { class: "pg-arrow", title: WORDS[entry.kind] }, ARROWS[entry.kind]),
    h("span", { class: "pg-mono" }, titleOf(entry)), status,
    h("span", { class: "pg-at" }, `${at} ms`));
  const body = entry.body === undefined ? null : h("pre", { class: "pg-json", tabindex: "0" },
    typeof entry.body === "string" ? entry.body : pretty(entry.body));
  return h("details", { class: "pg-message", "data-kind": entry.kind },
    summary,
    entry.headers ? h("pre", { class: "pg-headers", tabindex: "0" }, headerLines(entry.headers)) : null,
    body, body ? copyButton(() => body.textContent, body) : null);
}

function titleOf({ kind, title, body }) {
  if (title) return title;
  if (kind === "response" && body?.error) return `error ${body.error.code}`;
  return body?.result ? "result" : kind;
}

// The credential is never included; session ids are shortened.
function headerLines(headers) {
  return Object.entries(headers).map(([name, value]) => {
    const isSession = name.toLowerCase() === "mcp-session-id";
    return `${name}: ${isSession ? `${String(value).slice(0, SHORTENED)}…` : value}`;
  }).join("\n");
}
