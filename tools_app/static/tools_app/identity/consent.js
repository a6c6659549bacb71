// The presets of the consent page: tick the boxes of some groups, or the tools of a toolset, and no others.

const form = document.getElementById("consent");
const presets = form.querySelector(".hub-presets");
presets.hidden = false;
presets.addEventListener("click", ({ target }) => {
    const { preset, toolset } = target.dataset;
    if (toolset) {
        for (const box of form.querySelectorAll("input[name=tool]")) box.checked = (box.dataset.toolsets ?? "").split(" ").includes(toolset);
    } else if (preset) {
        for (const group of form.querySelectorAll("fieldset[data-group]")) {
            const ticked = preset === "all" || group.dataset.group === preset;
            for (const box of group.querySelectorAll("input")) box.checked = ticked;
        }
    } else return;
    if (preset !== "all") form.elements.later.checked = false;
});
