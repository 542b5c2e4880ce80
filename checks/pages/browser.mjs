// Uses the pages in Chromium and checks their limits: see checks/pages/browser.
//
// usage: browser.mjs URL GOLD_KEY PLATINUM_KEY NODE_TOOLS, for a served demo with a worker, whose filings have URLs.
//
// checks/pages/screenshots imports the exported functions; the checks run only when this file is the main program.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, request as httpRequest } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { failures, figures, check } from "../lib/report.mjs";

const [url, gold, platinum, tools] = process.argv.slice(2);

const MAX_ACTIONS = 6;
const MAX_SECONDS = 60;
const MAX_SHIFT = 0.02;
/** A slow page arrives in this many pieces, each long enough after the one before for the browser to draw it. */
const SLOW_PIECES = 30;
const SLOW_PIECE_INTERVAL_MS = 40;
const MAX_FIRST_PAINT_MS = 1000;
/** On a slow machine, a page may take this many times as long as an empty page. */
const MAX_FIRST_PAINT_RATIO = 5;
const NARROWEST = { width: 360, height: 700 };
const SIZES = { wide: { width: 1280, height: 800 }, narrow: { width: 390, height: 844 } };
const WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
const TIMEOUT_MS = 30_000;
const UNKNOWN_KEY = `vtm_${"0".repeat(43)}`;
/** Violations that axe-core finds in Scalar's own markup, which we cannot change: rule → description. */
const KNOWN_SCALAR_VIOLATIONS = {
  "aria-required-attr": "a field to fill in says that it is a combobox, without aria-expanded and aria-controls",
  "aria-prohibited-attr": "a button for more information has a name though its role is none",
  "aria-input-field-name": "the editor that shows an answer has no name",
  "aria-valid-attr-value": "a button that copies an answer controls what is not drawn yet",
  "scrollable-region-focusable": "the editor that shows an answer scrolls, and only its text takes the focus",
};

// ---- The browser, the pages ----

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  // No other host resolves, for any request.
  "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/** Starts Debian's Chromium; `tools` is where npm installed the driver. */
export function launch(tools) {
  const { chromium } = createRequire(join(tools, "node_modules/"))("playwright-core");
  return chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS });
}

/** Name → path of each of our pages; `company` is an object from the API. */
export function pagesOf(company) {
  return {
    home: "/",
    pricing: "/pricing",
    docs: "/docs",
    guides: "/docs/guides",
    guide: "/docs/guides/quickstart",
    dashboard: "/dashboard",
    status: "/status",
    series: "/series",
    "series-group": "/series/group/inflation",
    "series-cdi": "/series/cdi",
    "series-usd-brl": "/series/usd-brl",
    search: `/search?q=${encodeURIComponent(searchWord(company))}`,
    "search-empty": "/search?q=qqqqqqqqqq",
    company: `/companies/${company.id}`,
    terms: "/terms",
    privacy: "/privacy",
    data: "/data",
    missing: "/there-is-no-such-page",
  };
}

/** The most specific word of a company's name, as a person would type it. */
function searchWord({ name }) {
  const words = name.replace(/\bS\.?A\.?$/, "").trim().split(/\s+/);
  return words.at(-1).toLowerCase();
}

/** The company whose page shows as much as possible, among those with the most annual statements. */
export async function fullCompany(url, key) {
  const get = async (path) => (await fetch(`${url}${path}`, { headers: { "X-API-Key": key } })).json();
  const statements = await get("/api/v1/filings?category=DFP&limit=100");
  const counts = new Map();
  for (const { company_id: id } of statements.data) counts.set(id, (counts.get(id) ?? 0) + 1);
  const ids = [...counts.keys()].sort((one, other) => counts.get(other) - counts.get(one)).slice(0, 5);
  const companies = await Promise.all(ids.map((id) => get(`/api/v1/companies/${id}`)));
  const fullness = ({ tickers, former_names }) => (tickers.length > 0 ? 2 : 0) + (former_names.length > 0 ? 1 : 0);
  return companies.reduce((best, one) => (fullness(one) > fullness(best) ? one : best));
}

/** Waits for everything that loads after the page itself. */
export async function waitUntilLoaded(page) {
  const path = new URL(page.url()).pathname;
  if (path.startsWith("/series/") && !path.startsWith("/series/group/")) {
    await page.locator("#chart[data-ready]").waitFor();
  }
  if (path === "/docs") {
    await page.locator("#app h1").first().waitFor();
  }
  if (path === "/dashboard" && (await page.evaluate(() => sessionStorage.getItem("vintem-key")))) {
    await page.locator("#opened").waitFor();
  }
  await page.evaluate(() => document.fonts.ready);
  await page.waitForTimeout(300);
}

// ---- Visits, and what is recorded during all of them ----

let browser;
let slow;
let visits = 0;
const watched = { addresses: new Set(), elsewhere: [], errors: [], provoked: 0 };

/** Runs `work` in a fresh browser profile with its own address, and so with its own rate limit. */
async function visit({ provokes = [], key, ...options }, work) {
  visits += 1;
  const address = `198.51.${100 + Math.floor(visits / 250)}.${1 + (visits % 250)}`;
  const context = await browser.newContext({
    viewport: SIZES.wide,
    reducedMotion: "reduce",
    locale: "en-US",
    extraHTTPHeaders: { "X-Forwarded-For": address },
    ...options,
  });
  context.setDefaultTimeout(TIMEOUT_MS);
  watch(context, provokes);
  if (key) {
    await context.addInitScript((one) => location.origin === "null" || sessionStorage.setItem("vintem-key", one), key);
  }
  try {
    return await work(await context.newPage(), context);
  } finally {
    await context.close();
  }
}

/** `provokes`: parts of the addresses whose requests are meant to fail. */
function watch(context, provokes) {
  context.on("request", (request) => {
    const address = request.url();
    watched.addresses.add(address);
    if (!/^(data|blob):/.test(address) && ![url, slow.url].includes(new URL(address).origin)) {
      watched.elsewhere.push(address);
    }
  });
  context.on("page", (page) => page.on("framenavigated", (frame) => watched.addresses.add(frame.url())));
  context.on("weberror", (error) => watched.errors.push(`${error.page().url()}: ${error.error()}`));
  context.on("dialog", (dialog) => {
    watched.errors.push(`a dialog: ${dialog.message()}`);
    return dialog.dismiss();
  });
  context.on("console", (message) => {
    if (message.type() !== "error") {
      return;
    }
    const from = message.location().url;
    if (message.text().startsWith("Failed to load resource") && provokes.some((part) => from.includes(part))) {
      watched.provoked += 1;
    } else {
      watched.errors.push(`${message.page()?.url()}: ${message.text()} (${from})`);
    }
  });
}

async function api(path, key = gold) {
  const response = await fetch(url + path, { headers: key ? { "X-API-Key": key } : {} });
  const text = await response.text();
  return { status: response.status, text, body: JSON.parse(text) };
}

const textOf = (page, id) => page.locator(`#${id}`).textContent();

// ---- From the home page to the first successful call, and further with that key ----

async function journey(page, context) {
  const key = await firstCall(page);
  const calls = [];
  context.on("request", (request) => request.headers()["x-api-key"] && calls.push(request.url()));
  await check("the reference with the new key", () => tryInReference(page, key));
  await check("the dashboard with the new key", () => checkUsage(page, key, calls));
  await check("the label", () => setLabel(page));
  const next = await check("a new secret", () => rotate(page, key));
  await check("the upgrade", () => checkUpgradeLinks(page, next));
  await check("the end of the key", () => revoke(page, next));
}

/** Uses only elements in view, and counts the actions that this takes, including scrolling. */
async function firstCall(page) {
  let actions = 0;
  const act = async (element, action) => {
    await element.waitFor();
    if (!(await isInView(page, element))) {
      await element.scrollIntoViewIfNeeded();
      actions += 1;
    }
    await action(element);
    actions += 1;
  };
  const click = (element) => element.click();
  const startedAt = Date.now();
  await page.goto(url);
  await act(page.getByRole("link", { name: "Get a free key" }), click);
  await act(page.getByLabel("Name", { exact: true }), (element) => element.fill("Maria da Silva"));
  await act(page.getByLabel("Email"), (element) => element.fill("maria@example.com"));
  await act(page.getByRole("button", { name: "Get a free key" }), click);
  await act(page.getByRole("button", { name: "Run it here" }), click);
  const answer = page.locator("#register-answer");
  await answer.filter({ hasText: "HTTP" }).waitFor();
  figures.first_call_actions = actions;
  figures.first_call_seconds = ((Date.now() - startedAt) / 1000).toFixed(1);

  const [first, ...rest] = (await answer.textContent()).split("\n");
  assert.equal(first, "HTTP 200");
  const { body } = await api("/api/v1/market/selic/current");
  assert.deepEqual(JSON.parse(rest.join("\n")), body);
  assert.equal(body.series.id, "selic");
  assert.ok(actions <= MAX_ACTIONS, `it takes ${actions} actions`);
  assert.ok(Number(figures.first_call_seconds) < MAX_SECONDS, `it takes ${figures.first_call_seconds} s`);
  const key = await textOf(page, "register-key");
  assert.match(key, /^vtm_[0-9A-Za-z]{43}$/);
  return key;
}

async function isInView(page, element) {
  const { y, height } = await element.boundingBox();
  return y >= 0 && y + height <= page.viewportSize().height;
}

async function tryInReference(page, key) {
  await page.getByRole("link", { name: "Open the API reference with this key" }).click();
  const operation = await openOperation(page, "plans", "GET/api/v1/plans/usage");
  assert.ok((await operation.innerText()).includes(key), "the snippet is without the key");
  const { status, text } = await tryOperation(page, operation);
  assert.equal(status, "200");
  assert.match(text, /"plan": "free"/);
}

async function checkUsage(page, key, calls) {
  await page.getByRole("link", { name: "Dashboard" }).click();
  await page.locator("#opened").waitFor();
  // The first call and all later ones, up to and including the request for the usage.
  const requests = 2 + calls.findLastIndex((one) => one.includes("/plans/usage?detail=true"));
  assert.equal(await countToday(page, "requests"), requests, `calls: ${calls}`);
  assert.equal(await countToday(page, "successful"), requests);
  const market = page.locator("#groups-rows tr", { hasText: "/api/v1/market" });
  assert.equal(await market.locator("td").nth(1).textContent(), "1");
  assert.equal(await textOf(page, "key-start"), key.slice(0, 12));
  assert.equal(await textOf(page, "key-plan"), "Free");

  // Two more calls, and the two that the page makes to refresh.
  await api("/api/v1/market/cdi/current", key);
  assert.equal((await api("/api/v1/filings", key)).status, 403);
  await refresh(page);
  assert.equal(await countToday(page, "requests"), requests + 4);
  assert.equal(await countToday(page, "client_errors"), 1);
}

const countToday = async (page, count) => Number(await page.locator(`[data-today=${count}]`).textContent());

async function refresh(page) {
  await page.locator("#dashboard-message").evaluate((element) => (element.textContent = ""));
  await page.getByRole("button", { name: "Refresh" }).click();
  await page.locator("#dashboard-message").filter({ hasText: "fresh" }).waitFor();
}

async function setLabel(page) {
  const label = "<script>alert(1)</script>";
  await page.getByRole("button", { name: "Edit label" }).click();
  await page.locator("#label-input").fill(label);
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator("#dashboard-message").filter({ hasText: "saved" }).waitFor();
  assert.equal(await textOf(page, "key-label"), label);
  await page.reload();
  await page.locator("#opened").waitFor();
  assert.equal(await textOf(page, "key-label"), label);
  assert.equal(await page.locator("#key-label *").count(), 0);
}

async function rotate(page, key) {
  await page.getByRole("button", { name: "Rotate secret…" }).first().click();
  await page.getByLabel("immediately").check();
  await page.getByRole("button", { name: "Rotate", exact: true }).click();
  await page.locator("#secret-dialog").waitFor();
  const next = await textOf(page, "secret-value");
  assert.match(next, /^vtm_[0-9A-Za-z]{43}$/);
  assert.notEqual(next, key);
  await page.keyboard.press("Escape");
  assert.ok(await page.locator("#secret-dialog").isVisible(), "a stray Escape hides the secret");
  await page.getByRole("button", { name: "I saved it" }).click();
  assert.equal((await api("/api/v1/keys/me", key)).status, 401);
  assert.equal((await api("/api/v1/keys/me", next)).status, 200);
  await refresh(page);
  assert.equal(await textOf(page, "key-start"), next.slice(0, 12));
  assert.equal(await textOf(page, "secret-value"), "");
  return next;
}

/** The upgrade links contain the plan and the prefix of the key, and nothing more of the key. */
async function checkUpgradeLinks(page, key) {
  await page.getByRole("link", { name: "Upgrade" }).click();
  await page.locator("[data-upgrade]").first().waitFor();
  const hrefs = await page.locator("[data-upgrade]").evaluateAll((links) => links.map((link) => link.href));
  assert.equal(hrefs.length, 3);
  for (const [at, plan] of ["Bronze", "Gold", "Platinum"].entries()) {
    const { protocol, pathname, searchParams } = new URL(hrefs[at]);
    assert.deepEqual([protocol, pathname], ["mailto:", "contato@example.com"]);
    assert.equal(searchParams.get("body"), `Plan: ${plan}\nKey: ${key.slice(0, 12)}`);
    assert.ok(!hrefs[at].includes(key.slice(0, 13)), "more of the key than its beginning");
  }
  await page.getByRole("link", { name: "Dashboard" }).click();
  await page.locator("#opened").waitFor();
}

async function revoke(page, key) {
  await page.getByRole("button", { name: "Revoke key…" }).click();
  await page.locator("#revoke-input").fill("vtm_00000000");
  await page.getByRole("button", { name: "Revoke permanently" }).click();
  await page.locator("#revoke-problem").filter({ hasText: "first 12 characters" }).waitFor();
  await page.locator("#revoke-input").fill(key.slice(0, 12));
  await page.getByRole("button", { name: "Revoke permanently" }).click();
  await page.locator("#dashboard-message").filter({ hasText: "revoked" }).waitFor();
  assert.equal((await api("/api/v1/keys/me", key)).status, 401);
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
}

async function upgradeWithoutKey(page) {
  await page.goto(`${url}/pricing`);
  const hrefs = await page.locator("[data-upgrade]").evaluateAll((links) => links.map((link) => link.href));
  assert.ok(hrefs.length === 3 && hrefs.every((one) => one.startsWith("mailto:") && !one.includes("vtm_")), `${hrefs}`);
}

// ---- The API reference ----

/** Opens an operation from the side menu, because Scalar renders only what is near the viewport. */
async function openOperation(page, tag, name) {
  await page.locator("#app h1").first().waitFor();
  // The first link is in the menu; the section of the tag lists its operations again.
  const link = page.locator(`#app a[href$="#tag/${tag}/${name}"]`).first();
  if (!(await link.isVisible())) {
    await page.getByRole("button", { name: new RegExp(`Open Group - ${tag}`, "i") }).click();
  }
  await link.click();
  const operation = page.locator(`section[id$="/tag/${tag}/${name}"]`);
  await operation.waitFor();
  return operation;
}

/** Sends the request that the form suggests, and returns the status and all text of the form afterwards. */
async function tryOperation(page, operation, look = async () => {}) {
  await operation.getByRole("button", { name: /^Test Request/ }).click();
  const client = page.getByRole("dialog").filter({ has: page.getByRole("button", { name: "Close Client" }) });
  await client.getByRole("button", { name: /^Send get request/i }).click();
  await client.getByText("Response Information").waitFor({ state: "attached" });
  await client.getByText("Response Body").waitFor({ state: "attached" });
  const text = await client.innerText();
  await look();
  await client.getByRole("button", { name: "Close Client" }).click();
  return { status: text.match(/Status:\s*(\d+)/)?.[1], text };
}

const PLANS_OF_OPERATIONS = {
  "companies/GET/api/v1/companies": "Bronze",
  "filings/GET/api/v1/filings": "Gold",
  "webhooks/POST/api/v1/webhooks": "Platinum",
};

/** As a visitor without a key. */
async function readReference(page) {
  await page.goto(`${url}/docs`);
  const selic = await openOperation(page, "market", "GET/api/v1/market/selic/current");
  assert.equal(await selic.locator(".badge").innerText(), "Free");
  await selic.getByRole("button", { name: "curl" }).click();
  const labels = await page.getByRole("option").allInnerTexts();
  assert.deepEqual(labels, ["curl", "Python", "JavaScript", "R", "Google Sheets", "Excel"]);
  await page.getByRole("option", { name: "Google Sheets" }).click();
  await selic.getByText("UrlFetchApp").first().waitFor();
  await check("a call in the reference without a key", async () => {
    const { status, text } = await tryOperation(page, selic);
    assert.equal(status, "200");
    const { value } = (await api("/api/v1/market/selic/current", null)).body;
    assert.match(text, new RegExp(`"value": ${value}\\b`));
  });
  for (const [name, plan] of Object.entries(PLANS_OF_OPERATIONS)) {
    const operation = await openOperation(page, ...name.split(/\/(.*)/s));
    assert.equal(await operation.locator(".badge").innerText(), plan, name);
  }
}

// ---- The dashboard with a Platinum key ----

async function listenForWebhooks() {
  const events = [];
  const server = createServer(async (request, answer) => {
    let body = "";
    for await (const piece of request) {
      body += piece;
    }
    events.push({ headers: request.headers, ...JSON.parse(body) });
    answer.end();
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return { events, url: `http://127.0.0.1:${server.address().port}/hook`, close: () => server.close() };
}

async function waitUntil(what, condition) {
  for (const end = Date.now() + TIMEOUT_MS; !(await condition()); ) {
    assert.ok(Date.now() < end, `not within ${TIMEOUT_MS / 1000} s: ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

/** Uses every webhook button; each dialog and each error message is audited while it is open. */
async function useWebhooks(page) {
  const receiver = await listenForWebhooks();
  await page.goto(`${url}/dashboard`);
  await page.locator("#open-key").fill(platinum);
  await page.getByRole("button", { name: "Open" }).click();
  await page.locator("#webhooks-none").waitFor();
  assert.equal(await textOf(page, "key-plan"), "Platinum");
  assert.equal(await textOf(page, "key-support"), "suporte@example.com");

  await page.locator("#webhook-url").fill("https://10.0.0.1/hook");
  await page.getByRole("button", { name: "Create webhook" }).click();
  await page.locator("#webhook-problem").filter({ hasText: /./ }).waitFor();
  await audit(page, "a webhook that is refused");

  await page.locator("#webhook-url").fill(receiver.url);
  await page.getByLabel("rate.published").check();
  await page.getByRole("button", { name: "Create webhook" }).click();
  await page.locator("#secret-dialog").waitFor();
  assert.match(await textOf(page, "secret-value"), /^whsec_/);
  await audit(page, "the dialog with a secret");
  await page.getByRole("button", { name: "I saved it" }).click();

  const card = page.locator(".webhook");
  assert.equal(await card.locator("h3").textContent(), receiver.url);
  await card.getByRole("button", { name: "Test", exact: true }).click();
  await waitUntil("the test arrives", () => receiver.events.length === 1);
  assert.equal(receiver.events[0].type, "webhook.test");
  assert.match(receiver.events[0].headers["webhook-signature"], /^v1,/);
  const row = card.locator("tbody tr");
  await row.filter({ hasText: "delivered" }).waitFor();
  assert.equal(await row.count(), 1);
  assert.deepEqual((await row.locator("td").allInnerTexts()).slice(0, 4), ["webhook.test", "delivered", "1", "200"]);
  await card.getByRole("button", { name: /^Replay/ }).click();
  await waitUntil("the replay arrives", () => receiver.events.length === 2);
  assert.equal(receiver.events[1].headers["webhook-id"], receiver.events[0].headers["webhook-id"]);
  await row.locator("td").nth(2).filter({ hasText: "2" }).waitFor();
  await page.locator("#days-details summary").click();
  await audit(page, "the dashboard with everything open");

  await page.getByRole("button", { name: "Edit label" }).click();
  await audit(page, "the form of the label");
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.locator("#rotate-button").click();
  await audit(page, "the dialog of a new secret");
  await page.locator("#rotate-dialog").getByRole("button", { name: "Cancel" }).click();
  await page.locator("#revoke-button").click();
  await page.locator("#revoke-input").fill("vtm_00000000");
  await page.getByRole("button", { name: "Revoke permanently" }).click();
  await audit(page, "the dialog of the end, with what was mistyped");
  await page.locator("#revoke-dialog").getByRole("button", { name: "Cancel" }).click();

  await card.getByRole("button", { name: "Pause" }).click();
  await card.locator("[data-part=status]").filter({ hasText: "paused" }).waitFor();
  await card.getByRole("button", { name: "Resume" }).click();
  await card.locator("[data-part=status]").filter({ hasText: "active" }).waitFor();
  await card.getByRole("button", { name: "Delete…" }).click();
  await audit(page, "the dialog of deletion");
  await page.locator("#delete-confirm").click();
  await page.locator("#webhooks-none").waitFor();
  assert.deepEqual((await api("/api/v1/webhooks", platinum)).body.data, []);
  receiver.close();
}

// ---- Language and theme ----

async function switchLanguageAndTheme(page, { lang, other, links }) {
  const langOf = () => page.evaluate(() => document.documentElement.lang);
  const backgroundOf = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const follow = (link) => Promise.all([page.waitForEvent("load"), link.click()]);
  await page.goto(url);
  assert.equal(await langOf(), lang);
  await follow(page.locator("#language"));
  assert.equal(await langOf(), other);
  await follow(page.getByRole("link", { name: links[0], exact: true }));
  assert.equal(new URL(page.url()).search, "");
  assert.equal(await langOf(), other);
  await follow(page.locator("#language"));
  assert.equal(await langOf(), lang);
  await follow(page.getByRole("link", { name: links[1], exact: true }));
  assert.equal(new URL(page.url()).search, "");
  assert.equal(await langOf(), lang);

  const first = await backgroundOf();
  await page.locator("#theme").click();
  const second = await backgroundOf();
  assert.notEqual(second, first);
  await page.goto(`${url}/pricing`);
  assert.equal(await backgroundOf(), second);
  await page.locator("#theme").click();
  assert.equal(await backgroundOf(), first);
  await page.goto(`${url}/terms`);
  assert.equal(await backgroundOf(), first);
}

// ---- Search, companies ----

async function search(page, company) {
  await page.goto(url);
  const box = page.locator("#site-search");
  await box.fill(searchWord(company));
  await box.press("Enter");
  await page.waitForURL("**/search?q=*");
  const hits = page.locator(".hits li");
  const count = await hits.count();
  assert.ok(count >= 1 && count <= 10, `${count} hits`);
  await page.getByRole("link", { name: company.name, exact: true }).first().click();
  await page.waitForURL(`**/companies/${company.id}`);
  assert.equal(await page.locator("h1").textContent(), company.name);
  const { data } = (await api(`/api/v1/companies/${company.id}/filings?limit=10`)).body;
  assert.ok(data.length > 0, "a company without filings");
  const links = await page.locator(".hits li a").evaluateAll((all) => all.map((link) => link.getAttribute("href")));
  assert.deepEqual(links, data.map((filing) => filing.url));
  assert.ok(links.every((link) => link.startsWith("https://www.rad.cvm.gov.br/")), `${links}`);
}

// ---- Financial statements ----

const PAGE_STATEMENTS = ["income", "balance-sheet-assets", "balance-sheet-liabilities", "cash-flow"];

async function annualTable(id, statement, scope) {
  const query = `statement=${statement}&period=annual&layout=table&comparatives=true&scope=${scope}`;
  return (await api(`/api/v1/companies/${id}/statements?${query}`)).body;
}

/** The value of an account for a fiscal year, as filed then or as the next year's statements repeat it. */
const valueIn = (table, account, end, comparative) =>
  account.values[table.periods.findIndex((one) => one.period_end === end && one.comparative === comparative)] ?? null;

/** The id of a company of which an overview account was restated. */
async function restatedCompany() {
  const { body } = await api("/api/v1/filings?category=DFP&limit=100");
  for (const id of new Set(body.data.map((filing) => filing.company_id))) {
    for (const statement of PAGE_STATEMENTS) {
      const table = await annualTable(id, statement, "best");
      const ends = [...new Set(table.periods.map((period) => period.period_end))].slice(0, 5);
      const isRestated = (account, end) => {
        const [filed, later] = [valueIn(table, account, end, false), valueIn(table, account, end, true)];
        return filed !== null && later !== null && filed !== later;
      };
      if (table.data.filter(isOverview).some((account) => ends.some((end) => isRestated(account, end)))) {
        return id;
      }
    }
  }
  throw new Error("no company of the demo restated a figure");
}

const isOverview = (account) => account.fixed && account.unit === "BRL" && account.account.split(".").length <= 3;

async function readStatements(page, { id, key }) {
  await page.goto(`${url}/companies/${id}`);
  const section = page.locator("#statements");
  const tableOf = (statement) => section.locator(`table[data-statements~="${statement}"]`);
  const yearsOf = (statement) => tableOf(statement).locator("th[data-end]").evaluateAll((all) => all.map((one) => one.dataset.end));
  const chartYears = () => page.locator("#statement-chart").getAttribute("data-years");
  assert.equal((await yearsOf("income")).length, 2);
  assert.equal(await chartYears(), "2");

  // The button says what is missing, and works as soon as the tab has a key of the plan.
  await page.locator("#more-years").click();
  await page.locator("#more-years-message").filter({ hasText: "Gold" }).waitFor();
  assert.equal((await yearsOf("income")).length, 2);
  await page.evaluate((one) => sessionStorage.setItem("vintem-key", one), key);
  await page.locator("#more-years").click();
  await page.locator("#more-years").waitFor({ state: "hidden" });
  assert.equal(await chartYears(), "5");

  let restated = 0;
  for (const statement of PAGE_STATEMENTS) {
    const table = await annualTable(id, statement, await section.getAttribute("data-scope"));
    const years = await yearsOf(statement);
    assert.equal(years.length, 5, `${years}`);
    const rows = await tableOf(statement).locator("tbody tr").evaluateAll((all) =>
      all.map((row) => ({
        account: row.dataset.account,
        name: row.dataset.name,
        values: [...row.cells].slice(1).map((cell) => cell.dataset.value ?? null),
        marks: [...row.cells].slice(1).map((cell) => cell.querySelector(".restated") !== null),
      })),
    );
    for (const account of table.data.filter(isOverview)) {
      const row = rows.find((one) => one.account === account.account && one.name === account.name);
      assert.ok(row, `${account.account} ${account.name} is not on the page`);
      years.forEach((end, column) => {
        const [filed, later] = [valueIn(table, account, end, false), valueIn(table, account, end, true)];
        assert.equal(row.values[column] === null ? null : Number(row.values[column]), filed, `${account.account} ${end}`);
        const isRestated = filed !== null && later !== null && later !== filed;
        assert.equal(row.marks[column], isRestated, `${account.account} ${end}: ${filed}, later ${later}`);
        restated += isRestated ? 1 : 0;
      });
    }
  }
  assert.ok(restated > 0, "no figure is marked as restated");
}

// ---- A series ----

async function readSeries(page) {
  await page.goto(`${url}/series/cdi`);
  await page.locator("#chart[data-ready]").waitFor();
  const picture = () => page.locator("#chart canvas").evaluate((canvas) => canvas.toDataURL());
  const waitForRedraw = async (what, before) => {
    await waitUntil(what, async () => (await picture()) !== before);
    return picture();
  };
  const initial = await picture();
  await page.getByRole("button", { name: "1 year" }).click();
  const year = await waitForRedraw("the chart of one year", initial);
  await page.getByRole("button", { name: "all", exact: true }).click();
  const all = await waitForRedraw("the whole chart", year);
  assert.equal(await page.locator('[aria-pressed="true"]').textContent(), "all");

  const box = await page.locator("#chart .u-over").boundingBox();
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width * 0.4, y);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, y, { steps: 4 });
  await page.mouse.up();
  const closer = await waitForRedraw("the chart that was dragged over", all);
  await page.mouse.dblclick(box.x + box.width / 2, y);
  assert.equal(await waitForRedraw("the chart after a double click", closer), all);
}

async function accumulate(page, { lang, say }) {
  await page.goto(`${url}/series/cdi?lang=${lang}`);
  await page.locator("#from").fill("2024-01-02");
  await page.locator("#to").fill("2025-06-16");
  await page.locator("#amount").fill(lang === "pt" ? "2500,50" : "2500.50");
  await page.locator("#percent").fill("110");
  await page.locator("#accumulate button").click();
  await page.locator("#accumulated-result").filter({ hasText: "R$" }).waitFor();
  const path = "/api/v1/market/series/cdi/accumulated?from=2024-01-02&to=2025-06-16&amount=2500.50&percent=110";
  const { text, body } = await api(path, null);
  const digits = (name) => text.match(new RegExp(`"${name}":(-?[0-9.]+)`))[1];
  const shown = await textOf(page, "accumulated-result");
  assert.equal(shown, say(digits("result"), digits("factor"), body.business_days));
  assert.equal(await textOf(page, "accumulated-call"), `GET ${path}`);

  // The newest twelve months, by default, are what the central bank publishes as the change in twelve months.
  await page.goto(`${url}/series/ipca?lang=${lang}`);
  const [from, to] = [await page.locator("#from").inputValue(), await page.locator("#to").inputValue()];
  await page.locator("#accumulate button").click();
  await page.locator("#accumulated-result").filter({ hasText: "R$" }).waitFor();
  const year = await api(`/api/v1/market/ipca/accumulated?from=${from}&to=${to}`, null);
  assert.equal(year.body.months, 12);
  assert.ok((await textOf(page, "accumulated-result")).endsWith(lang === "pt" ? "· 12 meses" : "· 12 months"));
  const published = await api("/api/v1/market/series/ipca-12m/current", null);
  assert.equal(year.body.change_percent.toFixed(2), published.body.value.toFixed(2));
}

const RESULT_TEXT = {
  en: (result, factor, days) => `R$ ${result} · factor ${factor} · ${days} business days`,
  pt: (...values) => {
    const [result, factor, days] = values.map((one) => String(one).replace(".", ","));
    return `R$ ${result} · fator ${factor} · ${days} dias úteis`;
  },
};

// ---- axe-core ----

let axe;
const audits = { states: 0, violations: [], docs: {} };

/** Audits the page in both themes, without closing what a click has opened. `where` is for the report. */
async function audit(page, where) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const violation of await violationsOf(page)) {
      audits.violations.push(`${where}, ${colorScheme}: ${describe(violation)}`);
    }
  }
  audits.states += 1;
}

async function violationsOf(page) {
  if (!(await page.evaluate("typeof axe === 'object'"))) {
    await page.evaluate(axe);
  }
  const options = { runOnly: WCAG, resultTypes: ["violations"] };
  return (await page.evaluate((given) => window.axe.run(document, given), options)).violations;
}

function describe({ id, nodes }) {
  const descriptions = nodes.slice(0, 3).map(({ target, any }) => {
    const { fgColor, bgColor, contrastRatio } = any[0]?.data ?? {};
    return target.join(" ") + (contrastRatio ? ` (${fgColor} on ${bgColor}: ${contrastRatio})` : "");
  });
  return `${id}, ${nodes.length}: ${descriptions.join("; ")}`;
}

async function auditReference(page) {
  await page.goto(`${url}/docs`);
  // Its menu group stays open, and contains every HTTP method.
  await openOperation(page, "webhooks", "POST/api/v1/webhooks");
  const operation = await openOperation(page, "market", "GET/api/v1/market/selic/current");
  for (const theme of ["light", "dark"]) {
    if ((await page.evaluate(() => vintem.isDark())) !== (theme === "dark")) {
      await page.locator("#theme").click();
    }
    await tryOperation(page, operation, async () => {
      // The address line is colored for a moment after each response.
      await page.waitForTimeout(1500);
      recordReferenceViolations(await violationsOf(page), theme);
    });
    audits.states += 1;
  }
  const unknown = Object.entries(audits.docs).filter(([rule]) => !(rule in KNOWN_SCALAR_VIOLATIONS));
  const descriptions = unknown.map(([rule, { where }]) => `${rule}: ${where.join("\n  ")}`);
  assert.ok(descriptions.length === 0, descriptions.join("\n  "));
}

function recordReferenceViolations(violations, where) {
  for (const violation of violations) {
    const noted = (audits.docs[violation.id] ??= { count: 0, where: [] });
    noted.count += violation.nodes.length;
    noted.where.push(`${where}: ${describe(violation)}`);
  }
}

/** Registers a key on /pricing and makes the first call with it. */
export async function register(page, url) {
  await page.goto(`${url}/pricing`);
  await page.locator("#register-name").fill("Maria da Silva");
  await page.locator("#register-email").fill("maria@example.com");
  await page.locator("#register-form button[type=submit]").click();
  await page.locator("#register-run").click();
  await page.locator("#register-answer").filter({ hasText: "200" }).waitFor();
}

/** States of pages after a click or an error. */
const STATES = {
  async "registration that is refused"(page) {
    await page.goto(url);
    await page.locator("#register-name").fill("x");
    await page.locator("#register-email").fill("somebody@nowhere");
    await page.locator("#register-form button[type=submit]").click();
    await page.locator("#register-message.problem").filter({ hasText: /./ }).waitFor();
  },
  async "the new key and its first answer"(page) {
    await register(page, url);
    for (const question of await page.locator(".questions summary").all()) {
      await question.click();
    }
  },
  async "an answer on the first page"(page) {
    await page.goto(url);
    await page.locator("#try-form button").click();
    await page.locator("#try-status").filter({ hasText: "200" }).waitFor();
  },
  async "a key that is unknown"(page) {
    await page.goto(`${url}/dashboard`);
    await page.locator("#open-key").fill(UNKNOWN_KEY);
    await page.locator("#open-button").click();
    await page.locator("#open-problem").filter({ hasText: /./ }).waitFor();
  },
  async "a reckoning that is refused"(page) {
    await page.goto(`${url}/series/cdi`);
    await page.locator("#from").fill("2026-01-02");
    await page.locator("#to").fill("2025-01-02");
    await page.locator("#accumulate button").click();
    await page.locator("#accumulated-result.problem").filter({ hasText: /./ }).waitFor();
  },
  async "a reckoning"(page) {
    await page.goto(`${url}/series/usd-brl`);
    await page.locator("#accumulate button").click();
    await page.locator("#accumulated-result").filter({ hasText: "R$" }).waitFor();
  },
  async "a search that is too long"(page) {
    await page.goto(`${url}/search?q=${"a".repeat(201)}`);
    await page.locator("[role=alert]").waitFor();
  },
};
const PROVOKED = ["/plans/register", "/keys/me", "/accumulated", "/search?q=aaa", "/api/v1/webhooks"];

// ---- Every page ----

const measured = { shift: [{ shift: 0, name: "no page" }], firstPaint: [0] };
let emptyFirstPaint = 0;

/** The first paint of a page with a single word, as a baseline for the speed of the machine. */
async function measureEmptyPage() {
  const server = createServer((_, response) => response.setHeader("Content-Type", "text/html").end("<p>word"));
  await once(server.listen(0, "127.0.0.1"), "listening");
  const browser = await launch(tools);
  const page = await browser.newPage();
  const firstPaints = [];
  for (let load = 0; load < 3; load += 1) {
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await waitUntilLoaded(page);
    firstPaints.push((await page.evaluate(readTimings)).firstPaint);
  }
  await browser.close();
  server.close();
  [, emptyFirstPaint] = firstPaints.sort((one, other) => one - other);
  figures.empty_page_first_paint_ms = Math.round(emptyFirstPaint);
}

/**
 * Loads a page three times with an empty cache, as a new visitor does: once narrow, twice wide. Then once in pieces,
 * as over a slow connection, so that the browser draws it in parts.
 */
async function measure(name, path, key) {
  await visit({ key, provokes: name === "missing" ? [path] : [] }, async (page, context) => {
    const network = await context.newCDPSession(page);
    const firstPaints = [];
    const noteShift = async (shift, how) => {
      measured.shift.push({ shift, name });
      await check(`${name}, ${how}`, () => assert.ok(shift < MAX_SHIFT, `moves by ${shift.toFixed(4)}`));
    };
    for (const size of ["narrow", "wide", "wide"]) {
      await network.send("Network.clearBrowserCache");
      await page.setViewportSize(SIZES[size]);
      await page.goto(url + path);
      await waitUntilLoaded(page);
      const { shift, firstPaint } = await page.evaluate(readTimings);
      firstPaints.push(firstPaint);
      await noteShift(shift, size);
    }
    await page.goto(slow.url + path);
    await waitUntilLoaded(page);
    await noteShift((await page.evaluate(readTimings)).shift, "slow");
    await page.goto(url + path);
    await waitUntilLoaded(page);
    const [, median] = firstPaints.sort((one, other) => one - other);
    measured.firstPaint.push(median);
    const maxFirstPaint = Math.max(MAX_FIRST_PAINT_MS, MAX_FIRST_PAINT_RATIO * emptyFirstPaint);
    await check(`${name}, first paint`, () => assert.ok(median < maxFirstPaint, `${Math.round(median)} ms`));
    if (name !== "docs") {
      await audit(page, name);
    }
    await page.setViewportSize(NARROWEST);
    await page.waitForTimeout(100);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= NARROWEST.width, `${width} pixels wide where there are ${NARROWEST.width}`);
  });
}

/** Serves the same pages as the service, but sends each in pieces. */
async function startSlowProxy() {
  const pause = () => new Promise((done) => setTimeout(done, SLOW_PIECE_INTERVAL_MS));
  const server = createServer((request, response) => {
    const isPage = request.headers["sec-fetch-dest"] === "document";
    const headers = isPage ? { ...request.headers, "accept-encoding": "identity" } : request.headers;
    const forwarded = httpRequest(url + request.url, { method: request.method, headers }, async (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      if (!isPage) {
        answer.pipe(response);
        return;
      }
      const body = Buffer.concat(await answer.toArray());
      for (let piece = 0; piece < SLOW_PIECES; piece += 1) {
        const end = (index) => Math.floor((body.length * index) / SLOW_PIECES);
        response.write(body.subarray(end(piece), end(piece + 1)));
        await pause();
      }
      response.end();
    });
    forwarded.on("error", () => response.destroy());
    request.pipe(forwarded);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return { url: `http://127.0.0.1:${server.address().port}`, stop: () => server.close() };
}

/** Runs inside the page. */
function readTimings() {
  return new Promise((done) => {
    let shift = 0;
    const observe = (type, note) =>
      new PerformanceObserver((list) => list.getEntries().forEach(note)).observe({ type, buffered: true });
    observe("layout-shift", (one) => (shift += one.hadRecentInput ? 0 : one.value));
    observe("paint", ({ name, startTime: firstPaint }) => {
      if (name === "first-contentful-paint") {
        setTimeout(() => done({ shift, firstPaint }), 100);
      }
    });
  });
}

// ---- Main ----

async function main() {
  const startedAt = Date.now();
  axe = readFileSync(join(tools, "node_modules/axe-core/axe.min.js"), "utf8");
  browser = await launch(tools);
  slow = await startSlowProxy();
  const company = await fullCompany(url, gold);

  // Without X-Forwarded-For, so from this machine's own address.
  await check("the journey", () => visit({ extraHTTPHeaders: {} }, journey));
  await check("the upgrade without a key", () => visit({}, upgradeWithoutKey));
  await check("the reference", () => visit({}, readReference));
  await check("webhooks", () => visit({ provokes: ["/api/v1/webhooks"] }, useWebhooks));
  const english = { lang: "en", other: "pt-BR", links: ["Planos", "Guides"] };
  const portuguese = { lang: "pt-BR", other: "en", links: ["Pricing", "Guias"] };
  await check("language and theme", () =>
    visit({ colorScheme: "light" }, (page) => switchLanguageAndTheme(page, english)),
  );
  await check("idioma e tema", () =>
    visit({ locale: "pt-BR", colorScheme: "dark" }, (page) => switchLanguageAndTheme(page, portuguese)),
  );
  await check("search", () => visit({}, (page) => search(page, company)));
  await check("search without JavaScript", () =>
    visit({ javaScriptEnabled: false }, (page) => search(page, company)),
  );
  await check("statements", async () => {
    const id = await restatedCompany();
    await visit({ provokes: [`/api/v1/companies/${id}/statements`] }, (page) => readStatements(page, { id, key: gold }));
  });
  await check("a series", () => visit({}, readSeries));
  for (const [lang, say] of Object.entries(RESULT_TEXT)) {
    await check(`a reckoning, ${lang}`, () => visit({}, (page) => accumulate(page, { lang, say })));
  }

  const pages = Object.entries(pagesOf(company));
  await measureEmptyPage();
  for (const [name, path] of pages) {
    await check(name, () => measure(name, path));
  }
  await check("the open dashboard", () => measure("the open dashboard", "/dashboard", gold));
  for (const [name, show] of Object.entries(STATES)) {
    await check(name, () =>
      visit({ provokes: PROVOKED }, async (page) => {
        await show(page);
        await audit(page, name);
      }),
    );
  }
  await check("axe-core in the reference", () => visit({ colorScheme: "light" }, auditReference));

  const larger = (one, other) => (other.shift > one.shift ? other : one);
  const { addresses, elsewhere, errors, provoked } = watched;
  const own = /vtm_[0-9A-Za-z]{9,}/;
  const withKey = [...addresses].filter((one) => own.test(decodeURIComponent(one)));
  await check("no key in an address", () => assert.deepEqual(withKey, []));
  await check("nothing of another host", () => assert.deepEqual(elsewhere, []));
  await check("no error on the console", () => assert.deepEqual(errors, []));
  await check("axe-core", () => assert.ok(audits.violations.length === 0, audits.violations.join("\n  ")));
  await browser.close();
  slow.stop();

  Object.assign(figures, {
    pages: pages.length,
    visits,
    addresses: addresses.size,
    addresses_with_a_key: withKey.length,
    other_hosts_asked: elsewhere.length,
    console_errors: errors.length,
    csp_violations: errors.filter((one) => one.includes("Content Security Policy")).length,
    provoked_errors: provoked,
    largest_layout_shift: measured.shift.reduce(larger).shift.toFixed(4),
    largest_layout_shift_on: measured.shift.reduce(larger).name,
    slowest_first_paint_ms: Math.round(Math.max(...measured.firstPaint)),
    axe_states: audits.states,
    axe_violations: audits.violations.length,
    docs_violations: Object.entries(audits.docs).map(([rule, { count }]) => `${rule} ${count}`).join(", ") || "none",
    run_seconds: ((Date.now() - startedAt) / 1000).toFixed(1),
  });
  for (const failure of failures) {
    console.log(failure);
  }
  for (const [name, value] of Object.entries(figures)) {
    console.log(`${name}: ${value}`);
  }
  console.log(`failed: ${failures.length}`);
  process.exit(failures.length > 0 ? 1 : 0);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await main();
}
