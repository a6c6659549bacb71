// A form generated from a JSON Schema. Each field is {element, get(), set(value), fault(path, message), clear()}.
//
// `get` returns undefined for an omitted value. Unsupported schemas are edited as JSON, so that no data is lost.

import { button, h, newId, pretty } from "./dom.js";

const DEEPEST = 8;
const INPUTS = { date: "date", time: "time", email: "email", uri: "url", url: "url" };
const MANY_CHARACTERS = 200;

// The form of an object's schema; `changed()` is called when the user changes a value.
export function schemaForm(schema, changed) {
  return field(schema ?? {}, { root: schema ?? {}, name: "", required: true, depth: 0, changed });
}

// The initial value of a schema.
export function defaultOf(schema) {
  const value = schemaForm(schema, () => {}).get();
  return value === undefined ? {} : value;
}

function field(given, place) {
  const schema = simplified(given, place.root);
  const make = place.depth > DEEPEST ? jsonField : maker(schema);
  const created = make(schema, place);
  if (schema.default !== undefined) created.set(schema.default);
  return created;
}

function maker(schema) {
  if (choices(schema)) return choiceField;
  switch (schema.type) {
    case "object":
      return schema.properties ? objectField : jsonField;
    case "array":
      if (schema.items && !Array.isArray(schema.items)) return choicesOfItems(schema) ? checksField : listField;
      return jsonField;
    case "string":
      return textField;
    case "number":
    case "integer":
      return numberField;
    case "boolean":
      return booleanField;
    default:
      return schema.properties ? objectField : jsonField;
  }
}

// A schema with its reference resolved and without "or null": nullable values may be omitted.
function simplified(schema, root, depth = 0) {
  if (typeof schema !== "object" || schema === null || depth > DEEPEST) return {};
  if (typeof schema.$ref === "string") {
    const { $ref, ...rest } = schema;
    return simplified({ ...pointed(root, $ref), ...rest }, root, depth + 1);
  }
  if (schema.allOf?.length === 1) {
    const { allOf, ...rest } = schema;
    return simplified({ ...simplified(allOf[0], root, depth + 1), ...rest }, root, depth + 1);
  }
  for (const word of ["anyOf", "oneOf"]) {
    const options = schema[word]?.filter((option) => option?.type !== "null");
    if (options?.length === 1) {
      const { [word]: _, ...rest } = schema;
      return simplified({ ...simplified(options[0], root, depth + 1), ...rest }, root, depth + 1);
    }
  }
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((type) => type !== "null");
    return { ...schema, type: types.length === 1 ? types[0] : undefined };
  }
  return schema;
}

function pointed(root, reference) {
  if (!reference.startsWith("#")) return {};
  let found = root;
  for (const step of reference.slice(1).split("/").slice(1)) {
    found = found?.[decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~")];
  }
  return found ?? {};
}

// [{value, label}] if a schema is a choice of values, else null.
function choices(schema) {
  if (schema.const !== undefined) return [{ value: schema.const, label: schema.title ?? text(schema.const) }];
  if (Array.isArray(schema.enum)) {
    return schema.enum.map((value, at) => ({ value, label: schema.enumNames?.[at] ?? text(value) }));
  }
  const options = schema.oneOf ?? schema.anyOf;
  if (!options?.length || !options.every((option) => option?.const !== undefined)) return null;
  return options.map((option) => ({ value: option.const, label: option.title ?? text(option.const) }));
}

const choicesOfItems = (schema) => choices(schema.items);
const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

// --- Common behaviour of fields ---------------------------------------------------------------------------------

function framed(schema, place, control, { get, set, group = false }) {
  const id = newId("pg-field");
  const hint = hints(schema);
  const fault = h("p", { class: "pg-fault", id: `${id}-fault`, hidden: true });
  const inner = control.matches?.("input, select, textarea") ? control : null;
  if (inner) {
    inner.id = id;
    inner.setAttribute("aria-describedby", `${id}-hint ${id}-fault`);
    if (place.required) inner.setAttribute("aria-required", "true");
    inner.dataset.path = pathOf(place);
  }
  const marks = place.required ? h("span", { class: "pg-required", title: "required" }, " *") : null;
  const words = [schema.title ?? place.name, marks];
  const label = place.name === "" || group ? null : h("label", { for: id }, words);
  const legend = group && place.name !== "" ? h("legend", {}, words) : null;
  const element = h(
    group && place.name !== "" ? "fieldset" : "div",
    { class: `pg-field ${group ? "pg-group" : ""}` },
    legend, label,
    schema.description && place.name !== "" ? h("p", { class: "pg-hint" }, schema.description) : null,
    control,
    h("p", { class: "pg-hint", id: `${id}-hint`, hidden: !hint }, hint),
    fault,
  );
  const clear = () => {
    fault.hidden = true;
    inner?.removeAttribute("aria-invalid");
  };
  // An error of the previous value no longer applies.
  element.addEventListener("input", clear);
  element.addEventListener("change", clear);
  return {
    element, get, set, clear,
    fault: (path, message) => {
      fault.textContent = path.length ? `${path.join(".")}: ${message}` : message;
      fault.hidden = false;
      inner?.setAttribute("aria-invalid", "true");
    },
  };
}

const pathOf = (place) => (place.path ?? [place.name]).join(".");
const below = (place, name, required) => ({
  ...place, name, required, depth: place.depth + 1, path: [...(place.path ?? []), name],
});

function hints(schema) {
  const parts = [];
  if (schema.format && !INPUTS[schema.format]) parts.push(schema.format);
  for (const [word, words] of [
    ["minimum", "at least"], ["exclusiveMinimum", "more than"], ["maximum", "at most"],
    ["exclusiveMaximum", "less than"], ["multipleOf", "a multiple of"], ["pattern", "like"],
  ]) {
    if (schema[word] !== undefined) parts.push(`${words} ${schema[word]}`);
  }
  if (schema.minLength) parts.push(`at least ${schema.minLength} characters`);
  if (schema.maxLength !== undefined) parts.push(`at most ${schema.maxLength} characters`);
  if (schema.minItems) parts.push(`at least ${schema.minItems} entries`);
  if (schema.maxItems !== undefined) parts.push(`at most ${schema.maxItems} entries`);
  return parts.join(", ");
}

// --- Fields -----------------------------------------------------------------------------------------------------

function textField(schema, place) {
  const isLong = schema.maxLength > MANY_CHARACTERS || schema.contentMediaType !== undefined;
  const input = isLong
    ? h("textarea", { rows: 4, class: "pg-input", oninput: place.changed })
    : h("input", { type: INPUTS[schema.format] ?? "text", class: "pg-input", oninput: place.changed });
  if (schema.examples?.length) input.placeholder = text(schema.examples[0]);
  input.autocomplete = "off";
  return framed(schema, place, input, {
    get: () => (input.value === "" ? undefined : input.value),
    set: (value) => (input.value = value === undefined || value === null ? "" : text(value)),
  });
}

function numberField(schema, place) {
  // A text input, so that a number beyond the range of a number input is kept and rejected by the hub.
  const input = h("input", { type: "text", inputmode: "decimal", class: "pg-input", oninput: place.changed });
  input.autocomplete = "off";
  return framed(schema, place, input, {
    get: () => {
      const written = input.value.trim();
      if (written === "") return undefined;
      const number = Number(written);
      return Number.isFinite(number) ? number : written;
    },
    set: (value) => (input.value = value === undefined || value === null ? "" : String(value)),
  });
}

function booleanField(schema, place) {
  const labels = [{ value: true, label: "true" }, { value: false, label: "false" }];
  return select(schema, place, labels);
}

function choiceField(schema, place) {
  return select(schema, place, choices(schema));
}

function select(schema, place, options) {
  const input = h("select", { class: "pg-input", onchange: place.changed });
  if (!place.required || options.length > 1) input.append(h("option", { value: "" }, place.required ? "Choose…" : "—"));
  options.forEach(({ label }, at) => input.append(h("option", { value: String(at) }, label)));
  return framed(schema, place, input, {
    get: () => (input.value === "" ? undefined : options[Number(input.value)].value),
    set: (value) => {
      const at = options.findIndex((option) => JSON.stringify(option.value) === JSON.stringify(value));
      input.value = at < 0 ? "" : String(at);
    },
  });
}

function checksField(schema, place) {
  const options = choicesOfItems(schema);
  const boxes = options.map(({ label }) => {
    const box = h("input", { type: "checkbox", onchange: place.changed });
    return { box, element: h("label", { class: "pg-check" }, box, " ", label) };
  });
  return framed(schema, place, h("div", { class: "pg-checks" }, boxes.map(({ element }) => element)), {
    group: true,
    get: () => {
      const chosen = options.filter((_, at) => boxes[at].box.checked).map(({ value }) => value);
      return chosen.length || place.required ? chosen : undefined;
    },
    set: (value) => {
      const wanted = new Set((Array.isArray(value) ? value : []).map((entry) => JSON.stringify(entry)));
      boxes.forEach(({ box }, at) => (box.checked = wanted.has(JSON.stringify(options[at].value))));
    },
  });
}

function listField(schema, place) {
  let entries = [];
  const list = h("div", { class: "pg-list" });
  const changed = () => {
    list.dispatchEvent(new Event("change", { bubbles: true }));
    place.changed();
  };
  const add = (value) => {
    const inner = field(schema.items, below(place, "", true));
    if (value !== undefined) inner.set(value);
    const row = h("div", { class: "pg-row" }, inner.element);
    const entry = { inner, row };
    row.append(button("Remove", () => {
      entries = entries.filter((other) => other !== entry);
      row.remove();
      changed();
    }));
    entries.push(entry);
    list.append(row);
  };
  const more = button("Add an entry", () => {
    add();
    changed();
  });
  const outer = framed(schema, place, h("div", {}, list, more), {
    group: true,
    get: () => {
      const values = entries.map(({ inner }) => inner.get() ?? null);
      return values.length || place.required ? values : undefined;
    },
    set: (value) => {
      entries = [];
      list.replaceChildren();
      (Array.isArray(value) ? value : []).forEach(add);
    },
  });
  return nested(outer, (name) => entries[Number(name)]?.inner, () => entries.map(({ inner }) => inner));
}

function objectField(schema, place) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties).map(([name, inner]) => [
    name, field(inner, below(place, name, required.has(name))),
  ]);
  // Properties without a field are kept.
  let extras = {};
  const body = h("div", { class: "pg-fields" }, fields.map(([, inner]) => inner.element));
  if (!fields.length) body.append(h("p", { class: "pg-hint" }, "No arguments."));
  const outer = framed(schema, place, body, {
    group: true,
    get: () => {
      const values = { ...extras };
      for (const [name, inner] of fields) {
        const value = inner.get();
        if (value !== undefined) values[name] = value;
      }
      return Object.keys(values).length || place.required ? values : undefined;
    },
    set: (value) => {
      const given = typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
      extras = Object.fromEntries(Object.entries(given).filter(([name]) => !(name in schema.properties)));
      for (const [name, inner] of fields) inner.set(given[name]);
    },
  });
  const byName = new Map(fields);
  return nested(outer, (name) => byName.get(name), () => fields.map(([, inner]) => inner));
}

// Errors of nested values are shown at their fields.
function nested(outer, inside, all) {
  const { fault, clear } = outer;
  outer.fault = (path, message) => {
    const inner = path.length ? inside(path[0]) : undefined;
    if (inner) inner.fault(path.slice(1), message);
    else fault(path, message);
  };
  outer.clear = () => {
    clear();
    all().forEach((inner) => inner.clear());
  };
  return outer;
}

function jsonField(schema, place) {
  const input = h("textarea", { rows: 3, class: "pg-input pg-mono", placeholder: "JSON", oninput: place.changed });
  input.spellcheck = false;
  return framed({ ...schema, description: schema.description ?? "" }, place, input, {
    get: () => {
      const written = input.value.trim();
      if (written === "") return undefined;
      try {
        return JSON.parse(written);
      } catch {
        // Not JSON yet: sent as a string, which the hub rejects by name if it is invalid.
        return written;
      }
    },
    set: (value) => (input.value = value === undefined ? "" : pretty(value)),
  });
}
