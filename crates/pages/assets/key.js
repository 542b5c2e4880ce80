// The form that creates a key. Shows the key on the page and puts it into the session storage of this tab for the API
// reference and the dashboard. The key never goes into a URL. All texts come from the page, which knows the reader's
// language.
"use strict";

(() => {
  const form = document.getElementById("register-form");
  const submit = form.querySelector("button[type=submit]");
  const message = document.getElementById("register-message");
  const result = document.getElementById("register-result");
  const answer = document.getElementById("register-answer");
  const FIRST_CALL = "/api/v1/market/selic/current";

  let waiting = false;

  const register = async () => {
    const body = { name: form.elements.name.value, email: form.elements.email.value };
    const said = await vintem.call("/api/v1/plans/register", { method: "POST", body });
    return said.ok && said.body?.api_key
      ? { key: said.body.api_key }
      : { problem: said.body?.message || form.dataset.failed };
  };

  const showKey = (key) => {
    vintem.keepKey(key);
    document.getElementById("register-key").textContent = key;
    document.getElementById("register-curl").textContent =
      `curl -H 'X-API-Key: ${key}' \\\n  ${form.dataset.publicUrl}${FIRST_CALL}`;
    // Hide the form: a second click would create a second key.
    form.hidden = true;
    result.hidden = false;
    result.focus();
    document.dispatchEvent(new CustomEvent("vintem-key"));
  };

  const showMessage = (text, isProblem) => {
    message.textContent = text;
    message.classList.toggle("problem", isProblem);
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (waiting) {
      return;
    }
    waiting = true;
    showMessage(form.dataset.waiting, false);
    try {
      const { key, problem } = await register();
      showMessage(problem || "", Boolean(problem));
      if (key) {
        showKey(key);
      }
    } catch {
      // No connection.
      showMessage(form.dataset.failed, true);
    } finally {
      waiting = false;
    }
  });

  document.getElementById("register-run").addEventListener("click", async () => {
    try {
      const said = await vintem.call(FIRST_CALL, { key: vintem.key() });
      answer.textContent = `HTTP ${said.status}\n${said.body ? JSON.stringify(said.body, null, 2) : said.text}`;
    } catch {
      answer.textContent = form.dataset.failed;
    }
    answer.parentElement.hidden = false;
  });

  // The button is disabled in the HTML, because it does nothing without this script.
  submit.disabled = false;
})();
