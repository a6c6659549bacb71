// What can be called: how each kind is listed, which form it has, and how it is asked for.

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

// The arguments of a prompt are texts.
function promptSchema(prompt) {
  const given = prompt.arguments ?? [];
  const properties = Object.fromEntries(given.map(({ name, title, description }) => [
    name, { type: "string", title, description },
  ]));
  return { type: "object", properties, required: given.filter(({ required }) => required).map(({ name }) => name) };
}

export const nameOf = (entry) => entry.uri ?? entry.name;

// What a client is told about an entry, in a few words each.
export function badges({ annotations = {}, execution, mimeType }) {
  const said = [];
  if (annotations.readOnlyHint) said.push("read-only");
  else if (annotations.destructiveHint) said.push("may destroy");
  if (annotations.idempotentHint) said.push("idempotent");
  if (annotations.openWorldHint) said.push("reaches outside");
  if (execution?.taskSupport === "required") said.push("only as a task");
  if (mimeType) said.push(mimeType);
  return said;
}
