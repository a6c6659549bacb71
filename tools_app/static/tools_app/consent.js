// The presets of the consent page: tick the boxes of some groups, and of no others.

const form = document.getElementById("consent");
const presets = form.querySelector(".hub-presets");
presets.hidden = false;
presets.addEventListener("click", ({ target }) => {
    const preset = target.dataset.preset;
    if (!preset) return;
    for (const group of form.querySelectorAll("fieldset[data-group]")) {
        const ticked = preset === "all" || group.dataset.group === preset;
        for (const box of group.querySelectorAll("input")) box.checked = ticked;
    }
    if (preset !== "all") form.elements.later.checked = false;
});
