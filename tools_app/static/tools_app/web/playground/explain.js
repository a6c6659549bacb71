// Explanations of errors and how to fix them.

const BY_STATUS = {
  0: "Check that the hub is running at this page's address, and that no proxy or browser extension blocks the request.",
  401: "The API key is unknown, revoked or expired, or its tenant is disabled. Use another key.",
  403: "The hub rejects this page's origin, the client's network, or the method. Behind HTTPS, add the hub's own URL"
    + " to MCPHUB_ALLOWED_ORIGINS; otherwise check the key's scopes and networks.",
  404: "The key belongs to another tenant than the URL, or the session has ended. Reconnect.",
  413: "The request is larger than MCPHUB_MAX_BODY_BYTES.",
  421: "The host name is not allowed. Add it to MCPHUB_ALLOWED_HOSTS.",
  503: "A service that the call needs is unavailable. The message says which one, and whether anything ran. Try again.",
};

const BY_CODE = {
  "-32021": "The tool needs a client capability. If it needs tasks, select “Run as a task” and run it again.",
};

// {title, help, fields: [{field, message}]} of an McpError.
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

// The invalid fields named in a tool error result (not a protocol error from 2025-11-25 on).
export function fieldsIn(result) {
  const text = result?.content?.[0]?.text;
  if (!result?.isError || !text?.startsWith("Invalid arguments for")) return [];
  const lines = text.split("\n").slice(1);
  return lines.map((line) => /^- ([^:]+): (.*)$/.exec(line)).filter(Boolean)
    .map(([, field, message]) => ({ field, message }));
}
