// Buttons that copy the text of the element whose id is in `data-copy`.

for (const button of document.querySelectorAll("button[data-copy]")) {
    button.addEventListener("click", async () => {
        const text = document.getElementById(button.dataset.copy);
        // The clipboard is available on HTTPS and localhost only; elsewhere the text is selected for manual copying.
        try {
            await navigator.clipboard.writeText(text.textContent);
            button.textContent = "Copied";
        } catch {
            getSelection().selectAllChildren(text);
            button.textContent = "Selected: press Ctrl+C";
        }
    });
}
