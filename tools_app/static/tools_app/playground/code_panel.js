// A request as code, in one language at a time. The admin writes it: nothing here knows how.

import { askAdmin } from "./admin.js";
import { button, copyButton, h } from "./dom.js";

const LANGUAGES = { curl: "curl", python: "Python", typescript: "TypeScript" };

// Show `request` as code in `place`; the key stands in it as a placeholder.
export async function showCode(place, url, key, request) {
  place.hidden = false;
  try {
    place.replaceChildren(...panel(await askAdmin(url, { key, request: JSON.stringify(request) })));
  } catch (problem) {
    place.replaceChildren(h("p", { class: "pg-bad" }, problem.message));
  }
}

function panel(code) {
  const text = h("pre", { class: "pg-json", tabindex: "0" });
  const show = (language) => {
    text.textContent = code[language];
    for (const tab of tabs) tab.setAttribute("aria-pressed", String(tab.dataset.language === language));
  };
  const tabs = Object.entries(LANGUAGES).map(([language, label]) => {
    const tab = button(label, () => show(language), "pg-tab");
    tab.dataset.language = language;
    return tab;
  });
  show("curl");
  return [h("div", { class: "pg-actions" }, tabs, copyButton(() => text.textContent, text)), text];
}
