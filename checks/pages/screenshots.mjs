// Takes the pictures: see checks/pages/screenshots.
//
// usage: screenshots.mjs URL PLATINUM_KEY NODE_TOOLS DIRECTORY, of a served demo with a worker; SCREENSHOTS=few for few

import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import { fullCompany, launch, pagesOf, register, settled } from "./browser.mjs";

const [url, platinum, tools, directory] = process.argv.slice(2);
const MAX_HEIGHT = 3000;
const HEIGHTS = { 1280: 800, 390: 844 };
const VIEWS = [1280, 390].flatMap((width) =>
  ["light", "dark"].flatMap((theme) => ["en", "pt"].map((lang) => ({ width, theme, lang }))),
);
const KEPT = [
  { width: 1280, theme: "light", lang: "en" },
  { width: 390, theme: "dark", lang: "pt" },
];
const isFew = process.env.SCREENSHOTS === "few";

async function api(path, { method = "GET", body } = {}) {
  const headers = { "X-API-Key": platinum, "Content-Type": "application/json" };
  const response = await fetch(`${url}/api/v1/${path}`, { method, headers, body: body && JSON.stringify(body) });
  return response.json();
}

/** Something for the dashboard to show: requests that end in several ways, and a webhook that was tested. */
async function useKey() {
  const receiver = createServer((_, answer) => answer.end());
  await once(receiver.listen(0, "127.0.0.1"), "listening");
  for (const path of ["market/selic/current", "market/cdi/current", "companies?limit=1", "companies/0", "nothing"]) {
    await api(path);
  }
  const body = { url: `http://127.0.0.1:${receiver.address().port}/hook`, types: ["rate.published", "fx.published"] };
  const { id } = await api("webhooks", { method: "POST", body });
  await api(`webhooks/${id}/test`, { method: "POST" });
  return receiver;
}

// ---- What is shown after some clicks ----

async function openDashboard(page) {
  await page.goto(`${url}/dashboard`);
  await page.locator("#open-key").fill(platinum);
  await page.locator("#open-button").click();
  await page.locator(".webhook summary").click();
  await page.locator(".webhook tbody tr").first().waitFor();
}

async function showKey(page) {
  await register(page, url);
  await page.locator("#register-result").evaluate((place) => place.scrollIntoView());
}

async function tryOperation(page) {
  const name = "tag/market/GET/api/v1/market/selic/current";
  await page.goto(`${url}/docs#${name}`);
  await page.locator(`section[id$="${name}"] .show-api-client-button`).click();
  await page.getByRole("dialog").last().waitFor();
}

/** Only as much as the window has: of a dialog or of a place far down a whole page would show little. */
const WINDOWS = {
  key: showKey,
  "docs-try": tryOperation,
  async "dashboard-rotate"(page) {
    await openDashboard(page);
    await page.locator("#rotate-button").click();
  },
};

// ---- All of it ----

const pages = Object.entries(pagesOf(await fullCompany(url, platinum)));
const shots = pages.map(([name, path]) => ({ name, show: (page) => page.goto(url + path), isWhole: true }));
shots.push({ name: "dashboard-open", show: openDashboard, isWhole: true });
if (!isFew) {
  shots.push(...Object.entries(WINDOWS).map(([name, show]) => ({ name, show, isWhole: false })));
}

let visits = 0;
async function take(browser, { width, theme, lang }, { name, show, isWhole }) {
  visits += 1;
  const context = await browser.newContext({
    viewport: { width, height: HEIGHTS[width] },
    deviceScaleFactor: 1,
    colorScheme: theme,
    reducedMotion: "reduce",
    locale: lang === "pt" ? "pt-BR" : "en-US",
    timezoneId: "America/Sao_Paulo",
    // Each visit from an address of its own, which has a limit of its own.
    extraHTTPHeaders: { "X-Forwarded-For": `198.51.100.${visits % 250}` },
  });
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  await show(page);
  await settled(page);
  const path = join(directory, `${name}-${width}-${theme}-${lang}.png`);
  if (isWhole) {
    await page.evaluate(() => scrollTo(0, 0));
    const height = Math.min(MAX_HEIGHT, await page.evaluate(() => document.documentElement.scrollHeight));
    await page.screenshot({ path, animations: "disabled", fullPage: true, clip: { x: 0, y: 0, width, height } });
  } else {
    await page.screenshot({ path, animations: "disabled" });
  }
  await context.close();
}

const receiver = await useKey();
const browser = await launch(tools);
for (const view of isFew ? KEPT : VIEWS) {
  for (const shot of shots) {
    await take(browser, view, shot);
  }
}
await browser.close();
receiver.close();
