// Server-sent events out of a response's body (WHATWG HTML, §9.2): yields {id, event, data, retry, raw}.

export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      // A CR at the end may be the first half of a CRLF.
      const blocks = rest.split(/\r\n\r\n|\n\n|\r\r(?!$)/);
      rest = blocks.pop();
      for (const block of blocks) {
        const event = parsed(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  const event = { id: undefined, event: "message", data: undefined, retry: undefined, raw: block };
  for (const line of block.split(/\r\n|\n|\r/)) {
    if (!line || line.startsWith(":")) continue;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") event.data = event.data === undefined ? value : `${event.data}\n${value}`;
    else if (field === "retry") event.retry = Number(value);
    else if (field === "id" || field === "event") event[field] = value;
  }
  return event.data === undefined && event.id === undefined ? null : event;
}
