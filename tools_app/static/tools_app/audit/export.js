// The page of an export: starts the download of a new export and polls its progress once a second.

const EVERY_MS = 1000;
const LATER_MS = 10_000; // a finished download can be restarted
const MOST_FAILURES = 30;

const box = document.getElementById("export");
const part = (name) => box.querySelector(`[data-part="${name}"]`);
let failures = 0;

function show(state) {
  part("label").textContent = state.label;
  part("calls").textContent = state.calls.toLocaleString();
  part("bytes").textContent = state.bytes.toLocaleString();
  part("problem").textContent = state.problem;
  const bar = part("share");
  bar.hidden = state.state !== "running";
  if (state.share === null) {
    bar.removeAttribute("value");
  } else {
    bar.value = state.share;
  }
}

async function refresh() {
  let pause = EVERY_MS;
  if (document.hidden) {
    setTimeout(refresh, pause);
    return;
  }
  try {
    const answer = await fetch(box.dataset.progress, { headers: { Accept: "application/json" } });
    if (!answer.ok) {
      throw new Error(`The hub responded with HTTP ${answer.status}.`);
    }
    const state = await answer.json();
    show(state);
    pause = ["ready", "running"].includes(state.state) ? EVERY_MS : LATER_MS;
    failures = 0;
  } catch (problem) {
    failures += 1;
    part("problem").textContent = `${problem.message} Reload this page to see the progress of the export.`;
  }
  if (failures < MOST_FAILURES) {
    setTimeout(refresh, pause);
  }
}

if (box.dataset.begins) {
  // A download does not leave the page.
  window.location.assign(box.dataset.download);
}
setTimeout(refresh, EVERY_MS);
