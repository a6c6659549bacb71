// An editor of an object's JSON Schema: a row for each property. See `argument_rows.js`.

import { h } from "../web/playground/dom.js";
import { argumentRows, descriptionInput } from "./argument_rows.js";
import { listed, parsedList, parsedValue, shownValue } from "./typed_values.js";

const TYPES = ["string", "integer", "number", "boolean", "array", "object"];
const SCALAR = new Set(["string", "integer", "number", "boolean"]);

export function schemaEditor(textarea, { title, help }) {
  const notation = { empty: {}, fresh: { type: "string" }, problemOf, entries, written };
  return argumentRows(textarea, { title, help, label: "As JSON Schema", notation, inputs });
}

function entries(schema) {
  const required = schema.required ?? [];
  return Object.entries(schema.properties ?? {}).map(([name, property]) => (
    { name, was: name, property, required: required.includes(name) }
  ));
}

function written(schema, entries) {
  const properties = Object.fromEntries(entries.map(({ name, property }) => [name, property]));
  const byFormerName = new Map(entries.filter(({ was }) => was !== undefined).map((entry) => [entry.was, entry]));
  const before = schema.required ?? [];
  const isOurs = (name) => Object.hasOwn(schema.properties ?? {}, name);
  const required = [
    // Names without a property stay.
    ...before.filter((name) => !isOurs(name) || byFormerName.get(name)?.required).map((name) => byFormerName.get(name)?.name ?? name),
    ...entries.filter((entry) => entry.required && !before.includes(entry.was)).map(({ name }) => name),
  ];
  const { required: _, ...rest } = schema;
  return { ...rest, properties, ...(required.length ? { required } : {}) };
}

function inputs(entry, row) {
  const { property } = entry;
  const { labelled, place, say, alter } = row;
  const plain = isPlain(property);
  const kinds = plain && TYPES.includes(property.type) ? TYPES : [...TYPES, ""];
  const type = h("select", { class: "pg-input", ...place("type"), disabled: !plain, onchange: () => {
    alter(({ type: _, enum: __, default: ___, ...rest }) => ({ type: type.value, ...rest }), true);
  } }, kinds.map((kind) => h("option", { value: kind }, kind || (plain ? "any" : "see JSON"))));
  type.value = plain && TYPES.includes(property.type) ? property.type : "";
  const scalar = plain && SCALAR.has(property.type);
  const choices = h("input", {
    type: "text", class: "pg-input", value: listed(property?.enum), placeholder: "a, b, c", autocomplete: "off",
    disabled: !scalar || property.type === "boolean", ...place("enum"),
    onchange: () => {
      const [values, problem] = parsedList(choices.value, property.type);
      say(problem);
      if (!problem) alter(({ enum: _, ...rest }) => (values.length ? { ...rest, enum: values } : rest));
    },
  });
  const usual = h("input", {
    type: "text", class: "pg-input", value: shownValue(property?.default), autocomplete: "off",
    disabled: !scalar, ...place("default"),
    onchange: () => {
      const [value, problem] = parsedValue(usual.value, property.type);
      say(problem);
      if (!problem) alter(({ default: _, ...rest }) => (value === undefined ? rest : { ...rest, default: value }));
    },
  });
  return {
    plain,
    inputs: [
      labelled("Type", type), descriptionInput(entry, row), labelled("Allowed values", choices), labelled("Default", usual),
    ],
  };
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
