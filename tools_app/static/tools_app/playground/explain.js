// What went wrong, in words that say how to mend it.

const BY_STATUS = {
  0: "Is the hub running, and is this page's address its own? A proxy or an extension may block the request.",
  401: "The key is unknown, revoked or expired, or its tenant is switched off. Issue another key, or choose one.",
  403: "The hub refuses this page's origin, the key's network, or what the key asks for. Behind HTTPS, name the hub's"
    + " own address in MCPHUB_ALLOWED_ORIGINS; otherwise see the key's scopes and networks.",
  404: "The key belongs to another tenant than the address, or the session is over: connect again.",
  413: "What was sent is larger than MCPHUB_MAX_BODY_BYTES.",
  421: "The hub does not answer for this host name: add it to MCPHUB_ALLOWED_HOSTS.",
  503: "The hub cannot record calls right now, so nothing ran. Try again in a moment.",
};

const BY_CODE = {
  "-32021": "The tool needs a client that can do more. If it is one for tasks, tick “As a task” and run it again.",
};

// {title, help, fields: [{field, message}]} of a McpError.
export function explained(problem) {
  const fields = problem.data?.errors ?? [];
  if (problem.status === 429) return { title: problem.message, help: waiting(problem), fields };
  const known = problem.code === -32602 ? "" : BY_CODE[problem.code] ?? BY_STATUS[problem.status];
  return { title: problem.message, help: known ?? "", fields };
}

function waiting(problem) {
  const seconds = problem.data?.retryAfterSeconds ?? problem.retryAfter;
  return seconds ? `Try again in ${seconds} ${seconds === 1 ? "second" : "seconds"}.` : "Try again later.";
}

// The fields that a result names which refuses arguments (from 2025-11-25 on it is no error of the protocol).
export function fieldsIn(result) {
  const text = result?.content?.[0]?.text;
  if (!result?.isError || !text?.startsWith("Invalid arguments for")) return [];
  const lines = text.split("\n").slice(1);
  return lines.map((line) => /^- ([^:]+): (.*)$/.exec(line)).filter(Boolean)
    .map(([, field, message]) => ({ field, message }));
}
