// A collapsible tree of a JSON value. Branches are rendered when they are opened, so large values are cheap.

import { h } from "../web/playground/dom.js";

const OPEN_LEVELS = 2;
const MOST_OPEN = 50;
const AT_ONCE = 200;
// The audit log's replacement for secrets.
const HIDDEN = "[redacted]";
// JavaScript loses precision in numbers with this many digits, so their text is shown unchanged.
const LONG_NUMBER = /(?:^|[\s[{:,])-?\d{16,}/;

// The parsed value, or undefined where a tree would be wrong: invalid JSON, or numbers with too many digits.
export function parsed(text) {
  if (LONG_NUMBER.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function tree(value) {
  return h("div", { class: "call-tree", tabindex: "0" }, node(null, value, 0));
}

function node(name, value, level) {
  const label = name === null ? null : [h("span", { class: "call-key" }, name), ": "];
  if (value === null || typeof value !== "object") return h("div", {}, label, scalar(value));
  const entries = Array.isArray(value) ? value.map((entry, at) => [String(at), entry]) : Object.entries(value);
  const size = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length) return h("div", {}, label, h("span", { class: "call-size" }, Array.isArray(value) ? "[]" : "{}"));
  return branch(h("summary", {}, label, h("span", { class: "call-size" }, size)), entries, level);
}

function branch(summary, entries, level) {
  const children = h("div", { class: "call-branch" });
  const details = h("details", {}, summary, children);
  const fill = () => {
    if (!children.childElementCount) more(children, entries, 0, level + 1);
  };
  details.addEventListener("toggle", () => details.open && fill());
  if (level < OPEN_LEVELS && entries.length <= MOST_OPEN) {
    fill();
    details.open = true;
  }
  return details;
}

function more(children, entries, from, level) {
  children.append(...entries.slice(from, from + AT_ONCE).map(([name, value]) => node(name, value, level)));
  const left = entries.length - from - AT_ONCE;
  if (left <= 0) return;
  const next = h("button", { type: "button", class: "pg-button", onclick: () => {
    next.remove();
    more(children, entries, from + AT_ONCE, level);
  } }, `${left} more`);
  children.append(next);
}

function scalar(value) {
  if (value === HIDDEN) return h("span", { class: "call-redacted", title: "Redacted when it was recorded" }, "redacted");
  const kind = value === null ? "null" : typeof value;
  return h("span", { class: `call-${kind}` }, kind === "string" ? JSON.stringify(value) : String(value));
}
