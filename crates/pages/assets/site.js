// Runs on every page before anything is drawn: applies the reader's theme, and defines what the other scripts share.
"use strict";

const vintem = (() => {
  const THEME = "vintem-theme";
  const KEY = "vintem-key";
  const root = document.documentElement;

  /** What storage holds; some browsers are set to give none. */
  const stored = (storage, name) => {
    try {
      return window[storage].getItem(name);
    } catch {
      return null;
    }
  };

  const store = (storage, name, value) => {
    try {
      value === null ? window[storage].removeItem(name) : window[storage].setItem(name, value);
    } catch {
      // Then it lasts as long as the page.
    }
  };

  const chosen = stored("localStorage", THEME);
  if (chosen === "light" || chosen === "dark") {
    root.dataset.theme = chosen;
  }

  const isDark = () => {
    const theme = root.dataset.theme;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };

  const wireTheme = () => {
    const button = document.getElementById("theme");
    const show = () => button.setAttribute("aria-label", isDark() ? button.dataset.light : button.dataset.dark);
    show();
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      store("localStorage", THEME, root.dataset.theme);
      show();
      document.dispatchEvent(new CustomEvent("vintem-theme"));
    });
  };

  /** Asks the API as any client would; the key goes as a header, never into an address. */
  const call = async (path, { method = "GET", body, key = null } = {}) => {
    const headers = { Accept: "application/json", "Accept-Language": root.lang };
    if (key) {
      headers["X-API-Key"] = key;
    }
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
    }
    const sent = { method, headers, cache: "no-store", credentials: "omit" };
    const response = await fetch(path, body === undefined ? sent : { ...sent, body: JSON.stringify(body) });
    const text = await response.text();
    let answer = null;
    try {
      answer = text ? JSON.parse(text) : null;
    } catch {
      // Something in between answered that is not us.
    }
    return { ok: response.ok, status: response.status, headers: response.headers, body: answer, text };
  };

  /** A button that copies the text of the element which it names. */
  const copy = (button) => {
    const said = button.textContent;
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copies);
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = button.dataset.copied;
        setTimeout(() => {
          button.textContent = said;
        }, 2000);
      } catch {
        // Without HTTPS there is no clipboard: leave the text ready for Ctrl+C.
        getSelection().selectAllChildren(source);
      }
    });
  };

  document.addEventListener("DOMContentLoaded", () => {
    wireTheme();
    document.querySelectorAll("[data-copies]").forEach(copy);
  });

  return {
    isDark,
    call,
    copy,
    /** Kept in this tab alone, until it is closed. */
    key: () => stored("sessionStorage", KEY),
    keepKey: (key) => store("sessionStorage", KEY, key),
    forgetKey: () => store("sessionStorage", KEY, null),
  };
})();
