// An editor of an object's JSON Schema: a row for each property, in step with a textarea that holds the JSON.
//
// The textarea is the only state. A row changes the keywords that it shows and keeps all others, so that nothing is lost
// that rows cannot express. While the JSON is invalid or is no object of properties, only the JSON can be edited.

import { button, h, newId, pretty } from "../playground/dom.js";

const TYPES = ["string", "integer", "number", "boolean", "array", "object"];
const SCALAR = new Set(["string", "integer", "number", "boolean"]);
const PAUSE_MS = 250;

export function schemaEditor(textarea, { title, help }) {
  const rows = h("div", { class: "tb-rows" });
  const note = h("p", { class: "pg-hint", role: "status" });
  const add = button("Add an argument", () => {
    const schema = read() ?? {};
    const name = free(schema.properties ?? {});
    write({ ...schema, properties: { ...(schema.properties ?? {}), [name]: { type: "string" } } });
    rows.lastElementChild?.querySelector("input")?.select();
  });
  const left = h("div", { class: "tb-half", role: "group", "aria-label": title }, h("p", { class: "pg-hint" }, help), rows, note,
    h("div", { class: "pg-actions" }, add));
  const right = h("div", { class: "tb-half" }, h("label", { class: "pg-hint", for: textarea.id }, "As JSON Schema"));
  const whole = h("div", { class: "tb-schema" }, left, right);
  textarea.before(whole);
  right.append(textarea);
  textarea.classList.remove("max-w-2xl", "max-w-4xl");

  let waiting = 0;
  textarea.addEventListener("input", (event) => {
    if (event.detail === "rows") return;
    clearTimeout(waiting);
    waiting = setTimeout(draw, PAUSE_MS);
  });

  function read() {
    try {
      return JSON.parse(textarea.value);
    } catch {
      return null;
    }
  }

  const isEditable = () => problemOf(textarea.value, read()) === "";

  function write(schema, redraw = true) {
    textarea.value = pretty(schema);
    textarea.dispatchEvent(new CustomEvent("input", { bubbles: true, detail: "rows" }));
    if (redraw) draw();
  }

  function draw() {
    const schema = read();
    const problem = problemOf(textarea.value, schema);
    note.textContent = problem;
    add.disabled = problem !== "";
    if (problem) {
      rows.replaceChildren();
      return;
    }
    const names = Object.keys(schema.properties ?? {});
    note.textContent = names.length ? "" : "No arguments.";
    const active = document.activeElement?.dataset?.tbPlace;
    rows.replaceChildren(...names.map((name, at) => row(name, at, names.length)));
    if (active) rows.querySelector(`[data-tb-place="${CSS.escape(active)}"]`)?.focus();
  }

  // Change one property: `change(property)` returns the new one.
  function alter(name, change, redraw = false) {
    const schema = read();
    if (!schema?.properties || !Object.hasOwn(schema.properties, name)) return;
    write({ ...schema, properties: { ...schema.properties, [name]: change(schema.properties[name]) } }, redraw);
  }

  function reorder(name, by) {
    const schema = read();
    const entries = Object.entries(schema.properties);
    const at = entries.findIndex(([other]) => other === name);
    const [entry] = entries.splice(at, 1);
    entries.splice(at + by, 0, entry);
    write({ ...schema, properties: Object.fromEntries(entries) });
    rows.children[at + by]?.querySelector("input")?.focus();
  }

  function remove(name) {
    const schema = read();
    const { [name]: _, ...properties } = schema.properties;
    const required = (schema.required ?? []).filter((other) => other !== name);
    const { required: __, ...rest } = schema;
    write({ ...rest, properties, ...(required.length ? { required } : {}) });
    add.focus();
  }

  function rename(name, wanted) {
    const schema = read();
    if (wanted === name) return "";
    if (!wanted) return "Enter a name.";
    if (Object.hasOwn(schema.properties, wanted)) return "Another argument has this name.";
    const properties = Object.fromEntries(
      Object.entries(schema.properties).map(([other, value]) => [other === name ? wanted : other, value]),
    );
    const { required, ...rest } = schema;
    const names = required?.map((other) => (other === name ? wanted : other));
    write({ ...rest, properties, ...(names ? { required: names } : {}) });
    return "";
  }

  function row(name, at, many) {
    const schema = read();
    const property = schema.properties[name];
    const plain = isPlain(property);
    const fault = h("p", { class: "pg-fault", role: "alert", hidden: true });
    const say = (words) => {
      fault.textContent = words;
      fault.hidden = !words;
    };
    const place = (part) => ({ "data-tb-place": `${at}-${part}` });
    const labelled = (words, input, kind = "") => {
      input.id = newId("tb-property");
      return h("label", { class: `pg-field ${kind}`, for: input.id }, words, input);
    };

    const nameInput = h("input", {
      type: "text", class: "pg-input pg-mono", value: name, autocomplete: "off", ...place("name"),
      onchange: () => say(rename(name, nameInput.value.trim())),
    });
    const kinds = plain && TYPES.includes(property.type) ? TYPES : [...TYPES, ""];
    const type = h("select", { class: "pg-input", ...place("type"), disabled: !plain, onchange: () => {
      alter(name, ({ type: _, enum: __, default: ___, ...rest }) => ({ type: type.value, ...rest }), true);
    } }, kinds.map((kind) => h("option", { value: kind }, kind || (plain ? "any" : "see JSON"))));
    type.value = plain && TYPES.includes(property.type) ? property.type : "";
    const required = h("input", {
      type: "checkbox", ...place("required"), onchange: () => {
        const { required: now = [], ...rest } = read();
        const names = required.checked ? [...now, name] : now.filter((other) => other !== name);
        write({ ...rest, ...(names.length ? { required: names } : {}) }, false);
      },
    });
    required.checked = (schema.required ?? []).includes(name);
    const description = h("input", {
      type: "text", class: "pg-input", value: property.description ?? "", autocomplete: "off", ...place("description"),
      oninput: () => alter(name, ({ description: _, ...rest }) =>
        (description.value ? { ...rest, description: description.value } : rest)),
    });
    const scalar = plain && SCALAR.has(property.type);
    const choices = h("input", {
      type: "text", class: "pg-input", value: listed(property.enum), placeholder: "a, b, c", autocomplete: "off",
      disabled: !scalar || property.type === "boolean", ...place("enum"),
      onchange: () => {
        const [values, problem] = parsedList(choices.value, property.type);
        say(problem);
        if (!problem) alter(name, ({ enum: _, ...rest }) => (values.length ? { ...rest, enum: values } : rest));
      },
    });
    const usual = h("input", {
      type: "text", class: "pg-input", value: shownValue(property.default), autocomplete: "off",
      disabled: !scalar, ...place("default"),
      onchange: () => {
        const [value, problem] = parsedValue(usual.value, property.type);
        say(problem);
        if (!problem) alter(name, ({ default: _, ...rest }) => (value === undefined ? rest : { ...rest, default: value }));
      },
    });
    const up = button("↑", () => reorder(name, -1));
    const down = button("↓", () => reorder(name, 1));
    up.setAttribute("aria-label", `Move ${name} up`);
    down.setAttribute("aria-label", `Move ${name} down`);
    up.disabled = at === 0;
    down.disabled = at === many - 1;
    const gone = button("Remove", () => remove(name));
    gone.setAttribute("aria-label", `Remove ${name}`);
    required.id = newId("tb-property");
    return h("div", { class: "tb-row", role: "group", "aria-label": `Argument ${name}` },
      labelled("Name", nameInput), labelled("Type", type), labelled("Description", description, "tb-wide"),
      labelled("Allowed values", choices), labelled("Default", usual),
      h("div", { class: "pg-actions tb-wide" },
        h("label", { class: "pg-check", for: required.id }, required, " Required"), up, down, gone),
      plain ? null : h("p", { class: "pg-hint tb-wide" }, "This argument has more than a row can show. Edit it in the JSON."),
      fault);
  }

  draw();
  return { value: read, set: write, isEditable, onchange: (heard) => textarea.addEventListener("input", heard) };
}

// Why rows cannot show a schema; "" if they can.
function problemOf(text, schema) {
  if (text.trim() !== "" && schema === null) return "The JSON is invalid. Correct it to edit the arguments here.";
  if (!isObject(schema)) return "Enter a JSON object. The schema can only be edited as JSON for now.";
  if (schema.properties !== undefined && !isObject(schema.properties)) return "“properties” must be an object. Correct the JSON.";
  if (schema.required !== undefined && !Array.isArray(schema.required)) return "“required” must be a list. Correct the JSON.";
  if (["$ref", "oneOf", "anyOf", "allOf"].some((word) => word in schema)) {
    return "This schema combines others. Edit it as JSON.";
  }
  return "";
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// Whether a row shows the type of a property: one type, or none, and no combination of schemas.
function isPlain(property) {
  if (!isObject(property)) return false;
  if (["$ref", "oneOf", "anyOf", "allOf", "const", "not", "if"].some((word) => word in property)) return false;
  if (property.properties && Object.keys(property.properties).length) return false;
  return property.type === undefined || typeof property.type === "string";
}

function free(properties) {
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? "argument" : `argument${number}`;
    if (!Object.hasOwn(properties, name)) return name;
  }
}

const shownValue = (value) => (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));

// A list for people: separated by commas, or JSON if a value holds a comma.
function listed(values) {
  if (!Array.isArray(values)) return "";
  const simple = values.every((value) => !shownValue(value).includes(",") && shownValue(value).trim() === shownValue(value));
  return simple ? values.map(shownValue).join(", ") : JSON.stringify(values);
}

function parsedList(text, type) {
  const written = text.trim();
  if (!written) return [[], ""];
  if (written.startsWith("[")) {
    try {
      const values = JSON.parse(written);
      if (Array.isArray(values)) return [values, ""];
    } catch {
      // Said below.
    }
    return [[], "Enter values separated by commas, or a JSON list."];
  }
  const values = [];
  for (const part of written.split(",")) {
    const [value, problem] = parsedValue(part.trim(), type);
    if (problem) return [[], problem];
    if (value !== undefined) values.push(value);
  }
  return [values, ""];
}

function parsedValue(text, type) {
  if (text.trim() === "") return [undefined, ""];
  if (type === "string") return [text, ""];
  if (type === "boolean") {
    return text === "true" || text === "false" ? [text === "true", ""] : [undefined, "Enter true or false."];
  }
  const number = Number(text);
  if (!Number.isFinite(number) || (type === "integer" && !Number.isInteger(number))) {
    return [undefined, type === "integer" ? `${text} is not a whole number.` : `${text} is not a number.`];
  }
  return [number, ""];
}
