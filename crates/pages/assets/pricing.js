// The registration form of /pricing. The key goes from the answer to the page and nowhere else: not into an
// address, not into storage. All texts come from the page, which knows the reader's language.
"use strict";

const form = document.getElementById("register-form");
const submit = form.querySelector("button[type=submit]");
const message = document.getElementById("register-message");
const result = document.getElementById("register-result");

let waiting = false;

async function register() {
  const response = await fetch("/api/v1/plans/register", {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      Accept: "application/json",
      "Accept-Language": document.documentElement.lang,
    },
    body: JSON.stringify({ name: form.elements.name.value, email: form.elements.email.value }),
    cache: "no-store",
    credentials: "omit",
  });
  const body = await response.json();
  if (response.ok && body.api_key) {
    return { key: body.api_key };
  }
  return { problem: body.message || form.dataset.failed };
}

function showKey(key) {
  document.getElementById("register-key").textContent = key;
  document.getElementById("register-curl").textContent =
    `curl -H 'X-API-Key: ${key}' \\\n  ${form.dataset.publicUrl}/api/v1/market/selic/current`;
  // A second click would make a second key: the form has done its work.
  form.hidden = true;
  result.hidden = false;
  result.focus();
}

function showMessage(text, isProblem) {
  message.textContent = text;
  message.classList.toggle("problem", isProblem);
}

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
    // No connection, or an answer of something in between that is no JSON.
    showMessage(form.dataset.failed, true);
  } finally {
    waiting = false;
  }
});

for (const button of document.querySelectorAll("[data-copies]")) {
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copies);
    const said = document.getElementById("register-copied");
    try {
      await navigator.clipboard.writeText(source.textContent);
      said.textContent = result.dataset.copied;
    } catch {
      // Without HTTPS there is no clipboard: leave the text ready for Ctrl+C.
      getSelection().selectAllChildren(source);
      said.textContent = result.dataset.notCopied;
    }
  });
}

// Without this script the button could do nothing, so the page has it disabled.
submit.disabled = false;
