// Views of JSON text on a page: rendered, as a tree, and raw.

import { copyButton, h } from "../web/playground/dom.js";
import { rendered } from "../web/playground/results.js";
import { parsed, tree } from "./json_tree.js";

export function upgrade(box) {
  const raw = box.querySelector("[data-json-text]");
  const bar = box.querySelector("[data-json-bar]");
  const value = parsed(raw.textContent);
  const views = { Raw: raw };
  if (value !== undefined && value !== null && typeof value === "object") {
    views.Tree = tree(value);
    if ("rendered" in box.dataset) addContent(views, value);
  }
  const shown = ["Content", "Tree", "Raw"].filter((name) => views[name]);
  box.append(...shown.map((name) => views[name]));
  bar.prepend(copyButton(() => raw.textContent, raw));
  if (shown.length > 1) bar.prepend(...choosers(views, shown));
}

function choosers(views, names) {
  const choose = (chosen) => {
    for (const name of names) views[name].hidden = name !== chosen;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === chosen));
  };
  const buttons = names.map((name) =>
    h("button", { type: "button", class: "pg-button pg-tab", onclick: () => choose(name) }, name));
  choose(names[0]);
  return buttons;
}

// A result with content is rendered; the tree shows everything else.
function addContent(views, value) {
  const { structuredContent, ...rest } = value;
  const has = [rest.content, rest.contents, rest.messages].some((part) => Array.isArray(part) && part.length);
  if (!has && structuredContent === undefined) return;
  try {
    views.Content = h("div", { class: "call-content" },
      rest.isError === true ? h("p", { class: "pg-fault" }, "Tool error:") : null,
      has ? rendered(rest) : null,
      structuredContent === undefined ? null : [h("h3", {}, "Structured content"), tree(structuredContent)]);
  } catch {
    // Recorded values can have any shape: the tree shows them.
  }
}
