// Values as people type them into one field: a value of a JSON Schema type, and a list of them.

export const shownValue = (value) =>
  (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));

// A list for people: separated by commas, or JSON if a value holds a comma.
export function listed(values) {
  if (!Array.isArray(values)) return "";
  const simple = values.every((value) => !shownValue(value).includes(",") && shownValue(value).trim() === shownValue(value));
  return simple ? values.map(shownValue).join(", ") : JSON.stringify(values);
}

// [values, problem]: `problem` is "" if the list could be read.
export function parsedList(text, type) {
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

export function parsedValue(text, type) {
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
