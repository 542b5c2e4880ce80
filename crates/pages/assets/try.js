// Runs a sample request on the page and shows the real response. Uses the key if this tab has one.
"use strict";

(() => {
  const form = document.getElementById("try-form");
  const answer = document.getElementById("try-answer");
  const status = document.getElementById("try-status");
  const shown = document.getElementById("try-curl");

  const path = () => form.elements.path.value;

  const showRequest = () => {
    const key = vintem.key();
    const header = key ? `-H 'X-API-Key: ${key.slice(0, 12)}…' \\\n  ` : "";
    // `&` has a meaning of its own in a shell.
    const quote = path().includes("&") ? "'" : "";
    shown.textContent = `curl ${header}${quote}${form.dataset.publicUrl}${path()}${quote}`;
  };

  const standing = (headers) =>
    form.dataset.standing
      .replace("{remaining}", headers.get("x-ratelimit-remaining"))
      .replace("{limit}", headers.get("x-ratelimit-limit"));

  const run = async () => {
    const began = performance.now();
    status.textContent = form.dataset.waiting;
    try {
      const { status: code, headers, body, text } = await vintem.call(path(), { key: vintem.key() });
      const ms = Math.round(performance.now() - began);
      answer.textContent = body ? JSON.stringify(body, null, 2) : text;
      status.textContent = `HTTP ${code} · ${ms} ms · ${standing(headers)}`;
    } catch {
      status.textContent = form.dataset.failed;
    }
  };

  form.addEventListener("change", showRequest);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  document.addEventListener("vintem-key", showRequest);
  showRequest();
  form.querySelector("button").disabled = false;
})();
