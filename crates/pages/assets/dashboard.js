// The dashboard: plan, usage and webhooks of a key. The key is in the session storage of this tab (see site.js) and is
// sent in a header. All texts come from the page, which knows the reader's language. API responses are inserted as
// text, never as HTML.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);
  const texts = byId("dashboard").dataset;
  const openInput = byId("open-key");
  /** From lowest to highest. */
  const PLANS = texts.plans.trim().split(" ");
  const rank = (plan) => PLANS.indexOf(plan);

  /** The open key, its last `/keys/me` response, and the length of its rate limit window. */
  let key = null;
  let current = null;
  let windowSeconds = 60;

  // ---- Formatting ----

  const lang = document.documentElement.lang;
  // Same date format as the other pages.
  const dateLang = lang === "en" ? "en-GB" : lang;
  const numbers = new Intl.NumberFormat(lang);
  const shares = new Intl.NumberFormat(lang, { style: "percent", maximumFractionDigits: 1 });
  // The API counts by UTC days.
  const days = new Intl.DateTimeFormat(dateLang, { dateStyle: "medium", timeZone: "UTC" });
  const instants = new Intl.DateTimeFormat(dateLang, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });
  const clock = new Intl.DateTimeFormat(dateLang, { timeStyle: "medium", hourCycle: "h23" });

  const numberText = (number) => numbers.format(number);
  const dayText = (day) => days.format(new Date(`${day}T00:00:00Z`));
  const instantText = (instant) => instants.format(new Date(instant));
  const clockText = (instant) => clock.format(new Date(instant));
  const capital = (word) => word.charAt(0).toUpperCase() + word.slice(1);

  /** Returns a text of the page with its {fields} filled in. */
  const say = (name, fields = {}) => texts[name].replace(/\{(\w+)\}/g, (_, field) => fields[field]);
  /** Translates a value from the API. Unknown values are shown unchanged. */
  const wordFor = (kind, word) => texts[kind + capital(word)] ?? word;

  // ---- DOM helpers ----

  /** Sets the text of each element, by ID. */
  function fill(textsById) {
    Object.entries(textsById).forEach(([id, text]) => (byId(id).textContent = text));
  }

  function element(name, fields, ...children) {
    const made = Object.assign(document.createElement(name), fields);
    made.append(...children);
    return made;
  }

  function tableRow(head, cells) {
    const data = cells.map((cell) => element("td", {}, cell));
    return element("tr", {}, element("th", { scope: "row" }, head), ...data);
  }

  const onClick = (id, work) => byId(id).addEventListener("click", () => work(byId(id)));

  function onSubmit(id, work) {
    byId(id).addEventListener("submit", (event) => event.preventDefault());
    byId(id).addEventListener("submit", () => work());
  }

  /** Focuses the opener first, so that every browser returns the focus to it when the dialog closes. */
  function openDialog(id, opener) {
    opener?.focus();
    byId(id).querySelectorAll("[role=alert]").forEach((problem) => (problem.textContent = ""));
    byId(id).showModal();
  }

  // ---- API calls ----

  /** A failed call, with a message for the reader. */
  class Refusal extends Error {
    constructor(text, status) {
      super(text);
      this.status = status;
    }
  }

  async function ask(path, options) {
    const answer = await vintem.call(path, { key, ...options }).catch(() => {
      throw new Refusal(say("failed"));
    });
    // For a rejected key, the headers describe the limit of the IP address instead.
    if (answer.status !== 401) {
      showStanding(answer.headers);
    }
    if (!answer.ok) {
      throw new Refusal(refusalText(answer), answer.status);
    }
    return answer.body;
  }

  function refusalText({ status, body, headers }) {
    const text = body?.message ?? say("unknown", { status });
    const seconds = Number(headers.get("Retry-After"));
    if (status !== 429 || !seconds) {
      return text;
    }
    const when = Date.now() + seconds * 1000;
    return say("retry", { message: text, time: seconds < 3600 ? clockText(when) : instantText(when) });
  }

  const busy = new Set();

  /** Runs `work`, once at a time per element, and shows errors in the element. Returns the result of `work`. */
  async function attempt(place, work) {
    if (busy.has(place)) {
      return;
    }
    busy.add(place);
    place.textContent = "";
    place.parentElement.classList.add("busy");
    try {
      return await work();
    } catch (problem) {
      if (!(problem instanceof Refusal)) {
        throw problem;
      }
      if (problem.status === 401) {
        leave("", problem.message);
      } else {
        place.textContent = problem.message;
      }
    } finally {
      busy.delete(place);
      place.parentElement.classList.remove("busy");
    }
  }

  // ---- Opening and closing the dashboard ----

  async function open(given, movesFocus) {
    fill({ "dashboard-message": "" });
    openInput.removeAttribute("aria-invalid");
    const me = await attempt(byId("open-problem"), () => ask("/api/v1/keys/me", { key: given }));
    if (!me) {
      byId("open-section").hidden = false;
      return;
    }
    vintem.keepKey((key = given));
    showKey(me);
    await attempt(byId("usage-problem"), loadUsage);
    // The key may be revoked between two calls; the form is then open again.
    if (!key) {
      return;
    }
    openInput.value = "";
    byId("open-section").hidden = true;
    byId("opened").hidden = false;
    if (movesFocus) {
      byId("key-heading").focus();
    }
    await loadWebhooks();
  }

  async function refresh() {
    const me = await attempt(byId("key-problem"), () => ask("/api/v1/keys/me"));
    if (!me || !key) {
      return;
    }
    showKey(me);
    const usage = await attempt(byId("usage-problem"), loadUsage);
    if (usage && key) {
      fill({ "dashboard-message": say("refreshed", { time: clockText(usage.as_of) }) });
      await loadWebhooks();
    }
  }

  /** Returns to the form and shows the reason, as a message or as an error. */
  function leave(news, problem = "") {
    key = null;
    vintem.forgetKey();
    // Keep an open secret dialog: the secret cannot be shown again.
    document.querySelectorAll("dialog[open]:not(#secret-dialog)").forEach((dialog) => dialog.close());
    closeLabelForm();
    byId("webhooks-list").replaceChildren();
    byId("opened").hidden = true;
    byId("open-section").hidden = false;
    fill({ "dashboard-message": news, "open-problem": problem });
    openInput.setAttribute("aria-invalid", String(problem !== ""));
    openInput.focus();
  }

  function readInput() {
    openInput.removeAttribute("aria-invalid");
    // Pasted keys often end in a line break, which the pattern of the field rejects.
    openInput.value = openInput.value.trim();
  }

  // ---- The key ----

  const keyStart = () => current.key.replace("…", "");

  function showKey(me) {
    current = me;
    const limit = { limit: numberText(me.rate_limit), seconds: numberText(windowSeconds) };
    const previous = { key: me.previous_key, time: instantText(me.previous_key_ends_at ?? 0) };
    fill({
      "key-start": keyStart(),
      "key-plan": capital(me.plan),
      "key-limit": say(windowSeconds === 60 ? "limitMinute" : "limitSeconds", limit),
      "key-label": me.label || say("none"),
      "key-created": instantText(me.created_at),
      "key-used": me.last_used_on ? dayText(me.last_used_on) : say("never"),
      "key-expires": me.expires_at ? instantText(me.expires_at) : say(me.plan === "free" ? "unused" : "never"),
      "key-previous": say("previous", previous),
      "key-support": me.support ?? "",
    });
    byId("previous-row").hidden = !me.previous_key;
    byId("support-row").hidden = !me.support;
    byId("upgrade-link").hidden = rank(me.plan) === PLANS.length - 1;
  }

  function openLabelForm() {
    byId("label-shown").hidden = true;
    byId("label-form").hidden = false;
    byId("label-input").value = current.label;
    byId("label-input").focus();
    byId("label-input").select();
  }

  function closeLabelForm() {
    byId("label-form").hidden = true;
    byId("label-shown").hidden = false;
    fill({ "label-problem": "" });
    byId("label-edit").focus();
  }

  async function saveLabel() {
    await attempt(byId("label-problem"), async () => {
      const body = { label: byId("label-input").value };
      showKey(await ask("/api/v1/keys/me", { method: "PATCH", body }));
      closeLabelForm();
      fill({ "dashboard-message": say("labelSaved") });
    });
  }

  function openRevocation(opener) {
    byId("revoke-form").reset();
    byId("revoke-input").removeAttribute("aria-invalid");
    fill({ "revoke-start": keyStart() });
    openDialog("revoke-dialog", opener);
  }

  async function revoke() {
    const input = byId("revoke-input");
    const isTheKey = input.value.trim() === keyStart();
    input.setAttribute("aria-invalid", String(!isTheKey));
    if (!isTheKey) {
      fill({ "revoke-problem": say("notTheKey") });
      input.focus();
      return;
    }
    await attempt(byId("revoke-problem"), async () => {
      await ask("/api/v1/keys/me", { method: "DELETE" });
      leave(say("revoked", { key: keyStart() }));
    });
  }

  // ---- Secrets: rotate and show once ----

  /** The rotation to confirm: a function from the request body to a promise of the secret to show. */
  let rotation = null;

  function openRotation(what, opener, rotate) {
    rotation = rotate;
    byId("rotate-form").reset();
    fill({ "rotate-heading": say(`rotate${what}`), "rotate-note": say(`rotate${what}Note`) });
    openDialog("rotate-dialog", opener);
  }

  async function confirmRotation() {
    const grace = Number(byId("rotate-form").elements.grace.value);
    await attempt(byId("rotate-problem"), async () => {
      const secret = await rotation({ grace_seconds: grace });
      byId("rotate-dialog").close();
      showSecret(secret);
    });
  }

  async function rotateKey(body) {
    const answer = await ask("/api/v1/keys/rotate", { method: "POST", body });
    vintem.keepKey((key = answer.api_key));
    const { message: text, api_key: value, previous_key_ends_at: endsAt } = answer;
    return { heading: "newKey", text, value, endsAt, closed: refresh };
  }

  function showSecret({ heading, text, value, endsAt, closed }) {
    fill({
      "secret-heading": say(heading),
      "secret-message": text,
      "secret-value": value,
      "secret-ends": endsAt ? say("secretEnds", { time: instantText(endsAt) }) : "",
    });
    byId("secret-dialog").addEventListener("close", () => closed?.(), { once: true });
    openDialog("secret-dialog");
    byId("secret-heading").focus();
  }

  // ---- Rate limit ----

  function showStanding(headers) {
    const read = (name) => Number(headers.get(`X-RateLimit-${name}`));
    const [limit, remaining, reset] = [read("Limit"), read("Remaining"), read("Reset")];
    if (!limit) {
      return;
    }
    windowSeconds = Number(/;w=(\d+)/.exec(headers.get("RateLimit-Policy") ?? "")?.[1] ?? windowSeconds);
    Object.assign(byId("standing-meter"), { max: limit, low: limit / 5, optimum: limit, value: remaining });
    const counts = { remaining: numberText(remaining), limit: numberText(limit), seconds: numberText(windowSeconds) };
    const words = { now: clockText(Date.now()), reset: clockText(reset * 1000), ...counts };
    fill({ "standing-text": say(windowSeconds === 60 ? "standingMinute" : "standingSeconds", words) });
  }

  // ---- Usage ----

  /** The outcomes of requests in legend order, which is also bottom to top in a bar. */
  const OUTCOMES = [...document.querySelectorAll("[data-total]")].map((total) => total.dataset.total);
  const COUNTS = ["requests", ...OUTCOMES];

  const countTexts = (counts) => COUNTS.map((count) => numberText(counts[count]));
  const presentIn = (counts) => OUTCOMES.filter((outcome) => counts[outcome] > 0);

  async function loadUsage() {
    const usage = await ask("/api/v1/plans/usage?detail=true");
    const total = sum(usage.data);
    showCounts("today", usage.data[0]);
    showCounts("total", total);
    fill({ "usage-as-of": say(usage.complete ? "asOf" : "incomplete", { time: clockText(usage.as_of) }) });
    byId("days-rows").replaceChildren(...usage.data.map((day) => tableRow(dayText(day.date), countTexts(day))));
    drawChart([...usage.data].reverse(), total);
    showGroups(usage.data.flatMap((day) => day.groups), total.requests);
    return usage;
  }

  function sum(rows) {
    const sumOf = (count) => rows.reduce((all, row) => all + row[count], 0);
    return Object.fromEntries(COUNTS.map((count) => [count, sumOf(count)]));
  }

  function showCounts(where, counts) {
    const show = (place) => (place.textContent = numberText(counts[place.dataset[where]]));
    document.querySelectorAll(`[data-${where}]`).forEach(show);
  }

  function showGroups(rows, requests) {
    const names = [...new Set(rows.map((row) => row.group))];
    const groups = names.map((group) => ({ group, ...sum(rows.filter((row) => row.group === group)) }));
    groups.sort((one, other) => other.requests - one.requests);
    byId("groups-rows").replaceChildren(...groups.map((group) => groupRow(group, group.requests / requests)));
  }

  function groupRow(counts, share) {
    const name = counts.group === "other" ? say("noSuchPath") : element("code", {}, `/api/v1/${counts.group}`);
    const meter = element("meter", { min: 0, max: 1, value: share });
    meter.setAttribute("aria-hidden", "true");
    const shareCell = element("span", { className: "share" }, meter, shares.format(share));
    return tableRow(name, [shareCell, ...countTexts(counts)]);
  }

  // ---- The chart ----

  const CHART = { dayWidth: 20, barWidth: 14, height: 160, least: 3 };
  /** Space above the highest bar, because rare outcomes are drawn with a minimum height. */
  const HEADROOM = CHART.least * OUTCOMES.length;

  function svg(name, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([attribute, value]) => made.setAttribute(attribute, value));
    made.append(...children);
    return made;
  }

  function drawChart(data, total) {
    const busiest = data.reduce((most, day) => (day.requests > most.requests ? day : most));
    const [top, width] = [roundUp(busiest.requests), data.length * CHART.dayWidth];
    const line = (y) => svg("line", { class: "chart-line", x1: 0, x2: width, y1: y, y2: y });
    const lines = [HEADROOM, (HEADROOM + CHART.height) / 2, CHART.height].map(line);
    const chart = byId("usage-chart");
    chart.setAttribute("viewBox", `0 0 ${width} ${CHART.height}`);
    chart.replaceChildren(...lines, ...data.map((day, at) => bar(day, at * CHART.dayWidth, top)));
    const [from, to] = [dayText(data[0].date), dayText(data.at(-1).date)];
    const [day, most] = [dayText(busiest.date), numberText(busiest.requests)];
    const words = { from, to, day, most, requests: numberText(total.requests), outcomes: outcomesText(total) };
    chart.setAttribute("aria-label", say("chartLabel", words));
    fill({ "chart-top": numberText(top), "chart-from": from, "chart-to": to });
  }

  function bar(day, x, top) {
    let y = CHART.height;
    const left = x + (CHART.dayWidth - CHART.barWidth) / 2;
    const pieces = presentIn(day).map((outcome) => {
      const height = Math.max(CHART.least, (day[outcome] / top) * (CHART.height - HEADROOM));
      y -= height;
      return svg("rect", { class: `outcome-${outcome}`, x: left, y, width: CHART.barWidth, height });
    });
    const words = say("chartDay", { day: dayText(day.date), requests: numberText(day.requests) });
    const title = svg("title", {}, `${words}\n${outcomesText(day)}`);
    const area = svg("rect", { class: "chart-day", x, y: 0, width: CHART.dayWidth, height: CHART.height });
    return svg("g", {}, title, area, ...pieces);
  }

  function outcomesText(counts) {
    const words = (outcome) => `${wordFor("outcome", outcome)} ${numberText(counts[outcome])}`;
    return presentIn(counts).map(words).join(", ");
  }

  /** Rounds up to the next of 1, 2, 4, 6, 8, 10, 20, 40 … */
  function roundUp(number) {
    const step = 10 ** Math.floor(Math.log10(Math.max(number, 1)));
    return [1, 2, 4, 6, 8, 10].map((times) => times * step).find((round) => round >= number);
  }

  // ---- Webhooks ----

  const webhookPath = (webhook, rest = "") => `/api/v1/webhooks/${webhook.id}${rest}`;
  const partOf = (card, name) => card.querySelector(`[data-part="${name}"]`);
  const tellIfNone = () => (byId("webhooks-none").hidden = byId("webhooks-list").childElementCount > 0);

  async function loadWebhooks() {
    const isIncluded = rank(current.plan) >= rank(byId("webhooks-upgrade").dataset.plan);
    byId("webhooks-upgrade").hidden = isIncluded;
    byId("webhooks").hidden = !isIncluded;
    if (isIncluded) {
      await attempt(byId("webhooks-problem"), async () => {
        const { data } = await ask("/api/v1/webhooks");
        byId("webhooks-list").replaceChildren(...data.map(webhookCard));
        tellIfNone();
      });
    }
  }

  function webhookCard(webhook) {
    const card = byId("webhook-template").content.firstElementChild.cloneNode(true);
    partOf(card, "url").id = webhook.id;
    partOf(card, "deliveries-caption").id = `${webhook.id}-deliveries`;
    partOf(card, "deliveries-box").setAttribute("aria-labelledby", `${webhook.id}-deliveries`);
    const test = () => send(webhook, card, "/test", "tested");
    const actions = { test, pause: changeStatus, rotate: rotateWebhook, delete: openDeletion };
    for (const [name, action] of Object.entries(actions)) {
      const button = partOf(card, name);
      button.setAttribute("aria-describedby", webhook.id);
      button.addEventListener("click", () => action(webhook, card, button));
    }
    const deliveries = partOf(card, "deliveries");
    deliveries.addEventListener("toggle", () => deliveries.open && showDeliveries(webhook, card));
    fillWebhook(card, webhook);
    return card;
  }

  function fillWebhook(card, webhook) {
    const filters = Object.entries(webhook.filters).filter(([, values]) => values.length > 0);
    const reason = webhook.disabled_reason ? `: ${wordFor("reason", webhook.disabled_reason)}` : "";
    const parts = {
      url: webhook.url,
      status: wordFor("status", webhook.status) + reason,
      types: webhook.types.join(", ") || say("allTypes"),
      filters: filters.map(([name, values]) => `${name}: ${values.join(", ")}`).join("; "),
      success: webhook.last_success_at ? instantText(webhook.last_success_at) : say("never"),
      pause: say(webhook.status === "active" ? "pause" : "resume"),
    };
    Object.entries(parts).forEach(([name, text]) => (partOf(card, name).textContent = text));
    partOf(card, "filters-row").hidden = filters.length === 0;
    card.dataset.status = webhook.status;
  }

  /** Runs a call for one webhook and shows errors on its card. */
  function attemptOn(card, work) {
    partOf(card, "message").textContent = "";
    return attempt(partOf(card, "problem"), work);
  }

  async function changeStatus(webhook, card) {
    await attemptOn(card, async () => {
      const body = { status: card.dataset.status === "active" ? "paused" : "active" };
      const changed = await ask(webhookPath(webhook), { method: "PATCH", body });
      fillWebhook(card, changed);
      partOf(card, "message").textContent = say("statusNow", { status: wordFor("status", changed.status) });
    });
  }

  function rotateWebhook(webhook, _card, button) {
    openRotation("Webhook", button, async (body) => {
      const answer = await ask(webhookPath(webhook, "/rotate"), { method: "POST", body });
      const { message: text, secret: value, previous_secret_ends_at: endsAt } = answer;
      return { heading: "newSecret", text, value, endsAt };
    });
  }

  /** The deletion to confirm. */
  let deletion = null;

  function openDeletion(webhook, card, button) {
    deletion = { webhook, card };
    fill({ "delete-url": webhook.url });
    openDialog("delete-dialog", button);
  }

  async function confirmDeletion() {
    const { webhook, card } = deletion;
    await attempt(byId("delete-problem"), async () => {
      await ask(webhookPath(webhook), { method: "DELETE" });
      byId("delete-dialog").close();
      card.remove();
      tellIfNone();
      fill({ "dashboard-message": say("deleted") });
      byId("webhooks-heading").focus();
    });
  }

  async function createWebhook() {
    await attempt(byId("webhook-problem"), async () => {
      const form = new FormData(byId("webhook-form"));
      const body = { url: form.get("url").trim(), types: form.getAll("types") };
      const webhook = await ask("/api/v1/webhooks", { method: "POST", body });
      byId("webhooks-list").append(webhookCard(webhook));
      tellIfNone();
      byId("webhook-form").reset();
      byId("webhook-create").focus();
      showSecret({ heading: "createdSecret", text: say("createdMessage"), value: webhook.secret });
    });
  }

  // ---- Deliveries ----

  async function send(webhook, card, path, done) {
    const delivery = await attemptOn(card, () => ask(webhookPath(webhook, path), { method: "POST" }));
    if (delivery) {
      partOf(card, "message").textContent = say(done);
      await followDelivery(webhook, card, delivery.id);
    }
  }

  /** Polls the deliveries a few times, until this one has an outcome. */
  async function followDelivery(webhook, card, id) {
    partOf(card, "deliveries").open = true;
    for (const pause of [300, 1000, 2000, 4000]) {
      await new Promise((done) => setTimeout(done, pause));
      const data = card.isConnected ? await showDeliveries(webhook, card) : [];
      const state = data?.find((delivery) => delivery.id === id)?.state;
      if (data && state !== "waiting" && state !== "sending") {
        return;
      }
    }
  }

  function showDeliveries(webhook, card) {
    return attempt(partOf(card, "deliveries-problem"), async () => {
      const { data, total } = await ask(webhookPath(webhook, "/deliveries?limit=10"));
      const rows = partOf(card, "deliveries-rows");
      // The rows are replaced, so restore the focus if it was on one of their buttons.
      const focused = rows.contains(document.activeElement) && document.activeElement.dataset.delivery;
      rows.replaceChildren(...data.map((delivery) => deliveryRow(webhook, card, delivery)));
      rows.querySelector(`[data-delivery="${focused}"]`)?.focus();
      const counts = { shown: numberText(data.length), total: numberText(total) };
      partOf(card, "deliveries-caption").textContent = say("deliveries", counts);
      return data;
    });
  }

  function deliveryRow(webhook, card, { id, type, state, created_at, next_attempt_at, attempts }) {
    const [time, last] = [instantText(created_at), attempts.at(-1)];
    const answer = last ? String(last.status ?? wordFor("error", last.error)) : "–";
    const next = last && next_attempt_at ? say("next", { time: instantText(next_attempt_at) }) : "";
    const button = element("button", { type: "button", className: "plain" }, say("replay"));
    button.dataset.delivery = id;
    button.setAttribute("aria-label", say("replayWhich", { type, time }));
    button.addEventListener("click", () => send(webhook, card, `/deliveries/${id}/replay`, "replayed"));
    return tableRow(time, [type, wordFor("state", state) + next, numberText(attempts.length), answer, button]);
  }

  // ---- Start ----

  openInput.addEventListener("input", readInput);
  onSubmit("open-form", () => open(openInput.value, true));
  onClick("refresh-button", refresh);
  onClick("forget-button", () => leave(say("forgotten")));
  onClick("label-edit", openLabelForm);
  onClick("label-cancel", closeLabelForm);
  byId("label-input").addEventListener("keydown", (event) => event.key === "Escape" && closeLabelForm());
  onSubmit("label-form", saveLabel);
  onClick("revoke-button", openRevocation);
  onSubmit("revoke-form", revoke);
  onClick("rotate-button", (opener) => openRotation("Key", opener, rotateKey));
  onSubmit("rotate-form", confirmRotation);
  onSubmit("webhook-form", createWebhook);
  onSubmit("delete-form", confirmDeletion);
  const wireClosing = (button) => button.addEventListener("click", () => button.closest("dialog").close());
  document.querySelectorAll("[data-closes]").forEach(wireClosing);
  // The secret is shown only once, so Escape must not close the dialog.
  byId("secret-dialog").addEventListener("cancel", (event) => event.preventDefault());
  byId("secret-dialog").addEventListener("close", () => fill({ "secret-value": "" }));
  // The button is disabled in the HTML, because it does nothing without this script.
  byId("open-button").disabled = false;
  if (vintem.key()) {
    byId("open-section").hidden = true;
    open(vintem.key(), false);
  }
})();
