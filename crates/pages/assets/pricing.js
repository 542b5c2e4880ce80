// Adds the first 12 characters of the reader's key to the upgrade links, if this tab has a key: enough for the operator to
// find the key, and of no use to anybody else.
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
