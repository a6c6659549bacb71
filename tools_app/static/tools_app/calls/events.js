// Events of a call as rows of its timeline, created from the page's template.

const TEXTS = ["offset", "kind", "label", "title", "text", "raw"];

export function eventRow(event) {
  const row = document.getElementById("call-event").content.firstElementChild.cloneNode(true);
  const slot = (name) => row.querySelector(`[data-slot="${name}"]`);
  for (const name of TEXTS) slot(name).textContent = event[name];
  for (const name of ["kind", "label"]) slot(name).dataset.is = event[name];
  slot("label").hidden = !event.label;
  slot("text").hidden = !event.text;
  slot("more").hidden = !event.raw;
  slot("percent").hidden = event.percent === null;
  slot("percent").value = event.percent ?? 0;
  row.dataset.sequence = event.sequence;
  return row;
}
