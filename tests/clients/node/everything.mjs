// What both TypeScript clients do and report; they differ in how a client is made.

const STEPS = 3;
const LIMIT_MS = 45_000;

export const key = process.env.MCPHUB_API_KEY;
export const headers = { Authorization: `Bearer ${key}` };
export const capabilities = { elicitation: {}, sampling: {} };
export const info = { name: "everything", version: "1" };

export const elicited = async (request) => ({
  action: "accept",
  content: { username: request.params.message, email: "a@example.com" },
});

export const sampled = async (request) => {
  const [first] = request.params.messages;
  return { role: "assistant", model: "none", content: { type: "text", text: `answer to ${first.content.text}` } };
};

const textOf = (result) => result.content[0].text;

// `call(params, onprogress)` calls a tool.
async function play(client, call) {
  const progress = [];
  const hear = ({ progress: done, total, message }) => progress.push([done, total ?? null, message ?? null]);
  const about = { type: "ref/prompt", name: "test_prompt_with_arguments" };
  return {
    tools: (await client.listTools()).tools.map((tool) => tool.name),
    echo: textOf(await call({ name: "echo", arguments: { message: "world" } })),
    count: textOf(await call({ name: "count", arguments: { n: STEPS } }, hear)),
    progress,
    resource: (await client.readResource({ uri: "test://static-text" })).contents[0].text,
    prompt: (await client.getPrompt({ name: about.name, arguments: { arg1: "a", arg2: "b" } })).messages[0].content.text,
    completion: (await client.complete({ ref: about, argument: { name: "arg1", value: "par" } })).completion.values,
    elicited: textOf(await call({ name: "test_elicitation", arguments: { message: "Ada" } })),
    sampled: textOf(await call({ name: "test_sampling", arguments: { prompt: "why" } })),
  };
}

export async function report(client, transport, version, call) {
  setTimeout(() => {
    console.error("It took too long.");
    process.exit(2);
  }, LIMIT_MS).unref();
  await client.connect(transport);
  const seen = await play(client, call);
  const summary = { version: version(), ...seen };
  await client.close();
  process.stdout.write(JSON.stringify(summary));
}
