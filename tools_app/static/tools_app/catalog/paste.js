// The field for a pasted cURL command or URL. The hub parses it; the fields of the form take over what it found.

import { button, h, newId, pretty } from "../web/playground/dom.js";

const SUGGESTED = ["name", "title"];
const JSON_FIELDS = ["query", "headers", "body"];

export function pasteField(hub, { editor, secrets, follow }) {
  const card = document.getElementById("tb-paste");
  const text = document.getElementById("tb-paste-text");
  const result = document.getElementById("tb-paste-result");
  const use = document.getElementById("tb-paste-use");
  card.hidden = false;

  async function read() {
    use.disabled = true;
    const pasted = text.value;
    try {
      const draft = await hub.post(hub.start.draftUrl, { text: pasted });
      if (draft.problem) say(h("p", { class: "pg-fault" }, draft.problem));
      else show(draft, pasted);
    } catch (problem) {
      say(h("p", { class: "pg-fault" }, problem.message || "The hub did not answer. Try again."));
    } finally {
      use.disabled = false;
    }
  }

  function say(...parts) {
    result.replaceChildren(...parts.filter(Boolean));
  }

  let suggested = {};

  // Whether the user wrote this field; what an earlier paste suggested is replaced.
  const isOwn = (name) => hub.field(name).value !== "" && hub.field(name).value !== suggested[name];

  function written(name, value) {
    if (!JSON_FIELDS.includes(name)) return value;
    const isEmpty = value === null || (name !== "body" && !Object.keys(value).length);
    return isEmpty ? "" : pretty(value);
  }

  function show(draft, pasted) {
    const names = Object.keys(draft.fields).filter((name) => !SUGGESTED.includes(name) || !isOwn(name));
    const before = [...names, "input_schema"].map((name) => {
      const input = hub.field(name);
      return [name, input.type === "checkbox" ? input.checked : input.value];
    });
    for (const name of names) hub.fill(name, written(name, draft.fields[name]));
    suggested = Object.fromEntries(SUGGESTED.map((name) => [name, draft.fields[name]]));
    const undo = button("Undo", () => {
      for (const [name, value] of before) hub.fill(name, value);
      say(h("p", {}, "The form is as it was before."));
      text.focus();
    });
    if (draft.fields.follow_redirects || draft.fields.timeout_seconds) {
      const folded = hub.field("timeout_seconds").closest("details");
      if (folded) folded.open = true;
    }
    const { method, base_url: base, path } = draft.fields;
    say(
      h("div", { class: "pg-actions" }, h("p", { class: "pg-good" }, `Filled in: ${method} ${base}/${path}`), undo),
      ...draft.notes.map((note) => h("p", { class: "pg-warn" }, note)),
      ...draft.credentials.map((credential, at) => credentialRow(credential, at, pasted)),
      draft.values.length ? constants(draft.values) : null,
    );
  }

  // Offer to store one credential as a secret of the tenant.
  function credentialRow(credential, at, pasted) {
    const id = newId("tb-credential");
    const input = h("input", { type: "text", class: "pg-input pg-mono", id, value: credential.name, maxlength: "64", autocomplete: "off" });
    const status = h("p", { role: "status" });
    if (credential.stored) {
      status.textContent = `${credential.place} needs the secret ${credential.name}. Add it, or choose another in the list of secrets.`;
      return h("div", { class: "tb-credential" }, status);
    }
    let current = credential.name;
    const store = button("Store as a secret", async () => {
      const name = input.value.trim();
      store.disabled = true;
      try {
        const answer = await hub.post(hub.start.storeUrl, { tenant: hub.tenant(), text: pasted, position: at, name });
        if (answer.problem) throw new Error(answer.problem);
        if (name !== current) renameSecret(current, name);
        current = name;
        line.replaceChildren(status);
        status.className = "pg-good";
        status.textContent = `Stored as the secret ${name}.`;
        secrets.refresh();
      } catch (problem) {
        status.className = "pg-fault";
        status.textContent = problem.message;
        store.disabled = false;
      }
    }, "pg-primary");
    const line = h("div", { class: "tb-credential" },
      h("p", {}, `${credential.place} is a credential. It is not part of the tool: store it as a secret.`),
      h("div", { class: "pg-bar" }, h("label", { class: "pg-field", for: id }, "Name of the secret", input), store),
      status);
    return line;
  }

  function renameSecret(from, to) {
    for (const name of JSON_FIELDS) {
      const input = hub.field(name);
      hub.fill(name, input.value.replaceAll(`{secret:${from}}`, `{secret:${to}}`));
    }
  }

  // Offer constant values of the request as arguments.
  function constants(values) {
    const line = h("div", { class: "tb-credential" },
      h("p", {}, "These values are constant. Choose those that callers should set:"));
    const buttons = h("div", { class: "pg-actions" });
    for (const one of values) {
      const shown = typeof one.value === "string" ? one.value : JSON.stringify(one.value);
      const choose = button(`${one.name} = ${shown.slice(0, 40)}`, () => {
        if (makeArgument(one)) choose.remove();
        if (!buttons.children.length) line.remove();
      });
      buttons.append(choose);
    }
    line.append(buttons);
    return line;
  }

  function makeArgument({ where, name, value }) {
    const input = hub.field(where);
    let held;
    try {
      held = JSON.parse(input.value);
    } catch {
      return false;
    }
    const argument = name.replace(/[^A-Za-z0-9_$.-]/g, "_");
    held[name] = `{${argument}}`;
    const schema = editor.value();
    if (!schema) return false;
    const properties = { ...(schema.properties ?? {}) };
    const type = typeOf(value, where);
    properties[argument] ??= { type, examples: [type === "integer" ? Number(value) : value] };
    editor.set({ ...schema, properties });
    hub.fill(where, pretty(held));
    follow();
    return true;
  }

  use.addEventListener("click", read);
  text.addEventListener("paste", () => setTimeout(read));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) read();
  });
}

function typeOf(value, where) {
  if (typeof value === "boolean") return "boolean";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return where === "query" && /^-?\d{1,15}$/.test(value) ? "integer" : "string";
}
