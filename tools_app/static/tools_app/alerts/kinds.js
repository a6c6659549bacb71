// The forms of a new alert rule and a new destination: only the fields of the chosen kind, and the unit of a threshold.

const kind = document.querySelector("select[name=kind][data-kinds]");

function row(name) {
  const field = document.querySelector(`[name=${name}]`);
  return field?.closest(`.field-${name}`) ?? field?.closest(".form-row");
}

function show() {
  const kinds = JSON.parse(kind.dataset.kinds);
  const chosen = kinds[kind.value];
  for (const name of new Set(Object.values(kinds).flatMap((one) => one.fields))) {
    const found = row(name);
    if (found) found.hidden = !chosen?.fields.includes(name);
  }
  const help = document.getElementById("id_threshold_helptext");
  if (help && chosen?.help) help.textContent = chosen.help;
}

if (kind) {
  kind.addEventListener("change", show);
  show();
}
