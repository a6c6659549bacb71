// Polling while the page is visible, with backoff while the hub does not respond.

const PAUSE = 1000;
const LONGEST_PAUSE = 10000;

// Thrown for a response that a retry cannot change.
export class Refused extends Error {}

export async function fetchJson(url) {
  const answer = await fetch(url, { headers: { Accept: "application/json" }, cache: "no-store" });
  if (answer.redirected) throw new Refused("You are logged out. Log in again and reload this page.");
  if (answer.status === 403 || answer.status === 404) throw new Refused("This no longer exists, or you can no longer see it.");
  if (!answer.ok) throw new Error(`The hub responded with HTTP ${answer.status}.`);
  return answer.json();
}

// Runs `look` about once a second until it returns false. `report` receives problems, and "" when they are resolved.
export async function poll(look, report) {
  for (let pause = PAUSE; ; await wait(pause)) {
    if (document.hidden) await shown();
    try {
      if ((await look()) === false) return;
      if (pause !== PAUSE) report("");
      pause = PAUSE;
    } catch (problem) {
      if (problem instanceof Refused) return report(problem.message);
      pause = Math.min(2 * pause, LONGEST_PAUSE);
      report(`The hub is not responding. Retrying every ${pause / 1000} seconds.`);
    }
  }
}

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function shown() {
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
  });
}
