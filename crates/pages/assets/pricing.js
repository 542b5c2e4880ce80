// If this tab has a key, adds its first 12 characters to the upgrade links. The operator can find the key by them, and
// nobody can use them to call the API.
"use strict";

(() => {
  const SHOWN = 12;
  const addKey = () => {
    const key = vintem.key();
    if (!key) {
      return;
    }
    for (const link of document.querySelectorAll("[data-upgrade]")) {
      link.href = link.dataset.upgrade.replace("KEY", encodeURIComponent(key.slice(0, SHOWN)));
    }
  };
  addKey();
  document.addEventListener("vintem-key", addKey);
})();
