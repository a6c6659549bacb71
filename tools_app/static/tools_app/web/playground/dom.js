// DOM elements created without markup: data from clients and tools is only inserted as text.

// h("p", {class: "pg-note", hidden: true, onclick: f, "data-x": 1}, "text", element, null)
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

export function button(label, onclick, kind = "") {
  return h("button", { type: "button", class: `pg-button ${kind}`, onclick }, label);
}

// A button that copies the result of `text()`. The clipboard is available on HTTPS and localhost only.
export function copyButton(text, shown) {
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text());
      say("Copied");
    } catch {
      if (shown) getSelection().selectAllChildren(shown);
      say("Press Ctrl+C");
    }
  });
  const say = (words) => {
    copy.textContent = words;
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  };
  return copy;
}

export const pretty = (value) => JSON.stringify(value, null, 2);

let ids = 0;
export const newId = (start) => `${start}-${++ids}`;

export function randomHex(bytes) {
  const drawn = crypto.getRandomValues(new Uint8Array(bytes));
  return Array.from(drawn, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
