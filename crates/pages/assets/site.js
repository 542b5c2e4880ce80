// Runs on every page before it is painted. Applies the reader's theme and defines functions for the other scripts.
"use strict";

const vintem = (() => {
  const THEME = "vintem-theme";
  const KEY = "vintem-key";
  const root = document.documentElement;

  /** Returns the stored value, or null if the browser blocks storage. */
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
      // Storage is blocked, so the value is lost when the page closes.
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

  /** Calls the API. The key goes into a header, never into a URL. */
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
      // Not JSON: a proxy responded instead of the API.
    }
    return { ok: response.ok, status: response.status, headers: response.headers, body: answer, text };
  };

  /** Makes a button copy the text of the element that it names. */
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
        // The clipboard requires HTTPS. Select the text instead, ready for Ctrl+C.
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
    /** Stored for this tab only, until it is closed. */
    key: () => stored("sessionStorage", KEY),
    keepKey: (key) => store("sessionStorage", KEY, key),
    forgetKey: () => store("sessionStorage", KEY, null),
  };
})();
