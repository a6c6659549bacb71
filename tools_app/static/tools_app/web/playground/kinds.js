// The kinds of objects that can be called: how each is listed, its form, and its request.

const NOTHING = { type: "object", properties: {} };

export const KINDS = {
  tools: {
    list: "tools/list", field: "tools", method: "tools/call", schema: (tool) => tool.inputSchema,
    params: (tool, value) => ({ name: tool.name, arguments: value }),
  },
  resources: {
    list: "resources/list", field: "resources", method: "resources/read", schema: () => NOTHING,
    params: (resource) => ({ uri: resource.uri }),
  },
  prompts: {
    list: "prompts/list", field: "prompts", method: "prompts/get", schema: promptSchema,
    params: (prompt, value) => ({ name: prompt.name, arguments: value }),
  },
};

// Prompt arguments are strings.
function promptSchema(prompt) {
  const given = prompt.arguments ?? [];
  const properties = Object.fromEntries(given.map(({ name, title, description }) => [
    name, { type: "string", title, description },
  ]));
  return { type: "object", properties, required: given.filter(({ required }) => required).map(({ name }) => name) };
}

export const nameOf = (entry) => entry.uri ?? entry.name;

// Short descriptions of the properties of an entry.
export function badges({ annotations = {}, execution, mimeType }) {
  const hints = [];
  if (annotations.readOnlyHint) hints.push("read-only");
  else if (annotations.destructiveHint) hints.push("destructive");
  if (annotations.idempotentHint) hints.push("idempotent");
  if (annotations.openWorldHint) hints.push("open world");
  if (execution?.taskSupport === "required") hints.push("task required");
  if (mimeType) hints.push(mimeType);
  return hints;
}
