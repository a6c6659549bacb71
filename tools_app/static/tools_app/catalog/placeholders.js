// Placeholders of a request, and the arguments that they become. The syntax is that of the hub's templates.

const TOKEN = /\{\{|\}\}|\{(secret:)?([A-Za-z0-9_$.-]+)\}/g;

// The names of the arguments in a text; doubled braces are literal.
export function namesIn(text) {
  const names = new Set();
  for (const [, secret, name] of String(text).matchAll(TOKEN)) if (name && !secret) names.add(name);
  return names;
}

// The names that the request in the form uses, or null while a field holds invalid JSON.
export function namesUsed({ field }) {
  const names = namesIn(field("path").value);
  const parts = ["query", "headers"];
  if (field("body_mode").value === "template") parts.push("body");
  for (const part of parts) {
    const written = field(part).value.trim();
    if (!written) continue;
    let value;
    try {
      value = JSON.parse(written);
    } catch {
      return null;
    }
    for (const text of stringsOf(value)) for (const name of namesIn(text)) names.add(name);
  }
  return names;
}

function* stringsOf(value) {
  const waiting = [value];
  while (waiting.length) {
    const one = waiting.pop();
    if (typeof one === "string") yield one;
    else if (one && typeof one === "object") waiting.push(...Object.values(one));
  }
}

// Returns a function that adds a property for each new placeholder and removes those that it added itself, once they
// are no longer used and as long as nobody changed them.
export function syncArguments(editor, names) {
  const added = new Map();
  return () => {
    const used = names();
    const schema = editor.value();
    if (!used || !schema || !editor.isEditable()) return;
    const properties = { ...(schema.properties ?? {}) };
    let required = [...(schema.required ?? [])];
    let changed = false;
    for (const [name, was] of added) {
      if (used.has(name)) continue;
      added.delete(name);
      const untouched = JSON.stringify(properties[name]) === was && required.includes(name);
      if (!untouched) continue;
      delete properties[name];
      required = required.filter((other) => other !== name);
      changed = true;
    }
    for (const name of used) {
      if (Object.hasOwn(properties, name)) continue;
      Object.defineProperty(properties, name, {
        value: { type: "string" }, enumerable: true, configurable: true, writable: true,
      });
      required.push(name);
      added.set(name, JSON.stringify(properties[name]));
      changed = true;
    }
    if (!changed) return;
    const { required: _, ...rest } = schema;
    editor.set({ ...rest, properties, ...(required.length ? { required } : {}) });
  };
}
