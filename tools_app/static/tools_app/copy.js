// Buttons that copy the text of another element, whose id is in their `data-copy`.

for (const button of document.querySelectorAll("button[data-copy]")) {
    button.addEventListener("click", async () => {
        const text = document.getElementById(button.dataset.copy);
        // The clipboard is there on HTTPS and localhost only: elsewhere the text is selected, for copying by hand.
        try {
            await navigator.clipboard.writeText(text.textContent);
            button.textContent = "Copied";
        } catch {
            getSelection().selectAllChildren(text);
            button.textContent = "Selected: press Ctrl+C";
        }
    });
}
