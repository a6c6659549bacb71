// The admin endpoints that the pages use: impersonation tokens, code, records. Each POST sends the CSRF token.

const RENEW_BEFORE_MS = 60_000;
const MOST_TRIES = 3;

export async function askAdmin(url, fields) {
  const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
  const posted = () => ({ method: "POST", body: new URLSearchParams(fields), headers: { "X-CSRFToken": token } });
  const request = fields ? posted() : {};
  const response = await fetch(url, { credentials: "same-origin", ...request });
  const isJson = (response.headers.get("content-type") ?? "").startsWith("application/json");
  if (response.redirected || (response.ok && !isJson)) throw new Error("You are logged out. Reload this page.");
  const answer = isJson ? await response.json() : {};
  const refusal = answer.problem ?? refusals[response.status] ?? `The admin responded with HTTP ${response.status}.`;
  if (!response.ok) throw new Error(refusal);
  return answer;
}

const refusals = {
  403: "Only admins of its tenant can use this key in the playground. Reload this page if you are one.",
  404: "This key no longer exists. Reload this page.",
};

// An impersonation token for one key, renewed before it expires while the page is open.
export class PassHolder {
  constructor(url, key) {
    Object.assign(this, { url, key, text: null, ends: 0, asking: null, timer: null });
  }

  // The credential after "Bearer".
  async credential() {
    if (this.text === null || Date.now() >= this.ends - RENEW_BEFORE_MS / 2) await this.renew();
    return this.text;
  }

  renew() {
    this.asking ??= this.#fetchToken().finally(() => (this.asking = null));
    return this.asking;
  }

  drop() {
    clearTimeout(this.timer);
    this.text = null;
  }

  async #fetchToken() {
    const given = await askAdmin(this.url, { key: this.key });
    this.text = given.pass;
    this.ends = Date.now() + given.seconds * 1000;
    this.#plan(given.seconds * 1000 - RENEW_BEFORE_MS, MOST_TRIES);
  }

  #plan(delay, tries) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.renew().catch(() => tries > 1 && this.#plan(RENEW_BEFORE_MS / MOST_TRIES, tries - 1));
    }, delay);
  }
}

// The records of the calls of one trace. Polls a few times until one has finished.
export async function recordsOf(url, key, trace, since) {
  const query = new URLSearchParams({ key, trace, since: String(since) });
  for (let tries = 0; ; tries++) {
    const { records } = await askAdmin(`${url}?${query}`);
    if (tries >= 8 || (records.length && records.every((record) => record.page === "call"))) return records;
    await new Promise((done) => setTimeout(done, 400));
  }
}
