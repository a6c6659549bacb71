// The overview page: component health, loaded separately so that no component delays the page, and selects that
// submit on change.

const EVERY_MS = 15_000;

function entry(template, part) {
  const row = template.content.cloneNode(true);
  row.querySelector("[data-name]").textContent = part.name;
  row.querySelector("[data-says]").textContent = part.says;
  row.querySelector(part.is_well ? "[data-bad]" : "[data-well]").remove();
  return row;
}

async function refresh(card) {
  const says = card.querySelector("[data-state]");
  try {
    const answer = await fetch(card.dataset.health, { headers: { Accept: "application/json" } });
    if (!answer.ok) {
      throw new Error(`the hub responded with HTTP ${answer.status}`);
    }
    const { parts } = await answer.json();
    const template = card.querySelector("template");
    card.querySelector("[data-parts]").replaceChildren(...parts.map((part) => entry(template, part)));
    says.textContent = "";
  } catch (problem) {
    says.textContent = `Unknown: ${problem.message}. Retrying in ${EVERY_MS / 1000} seconds.`;
  }
}

const card = document.querySelector("[data-health]");
if (card) {
  refresh(card);
  setInterval(() => document.hidden || refresh(card), EVERY_MS);
}

for (const choice of document.querySelectorAll("select[data-at-once]")) {
  choice.addEventListener("change", () => choice.form.requestSubmit());
}
