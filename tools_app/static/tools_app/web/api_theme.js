// The API browser is light or dark as chosen in the admin, whose choice unfold keeps under this name.

const CHOICE = "adminTheme";

function isDark() {
    let choice;
    try {
        choice = JSON.parse(localStorage.getItem(CHOICE));
    } catch {
        choice = null;
    }
    return choice === "dark" || (choice !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

function follow() {
    document.documentElement.classList.toggle("dark-mode", isDark());
}

follow();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", follow);
addEventListener("storage", follow);
