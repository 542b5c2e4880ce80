// Takes the screenshots: see checks/pages/screenshots.
//
// usage: screenshots.mjs URL PLATINUM_KEY NODE_TOOLS DIRECTORY, of a served demo with a worker; SCREENSHOTS=few for few

import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import { fullCompany, launch, pagesOf, register, waitUntilLoaded } from "./browser.mjs";

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

/** Gives the dashboard something to show: requests with different outcomes, and a webhook that was tested. */
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

// ---- States that need some clicks ----

async function openDashboard(page) {
  await page.goto(`${url}/dashboard`);
  await page.locator("#open-key").fill(platinum);
  await page.locator("#open-button").click();
  await page.locator(".webhook summary").click();
  await page.locator(".webhook tbody tr").first().waitFor();
}

async function showKey(page) {
  await register(page, url);
  await page.locator("#register-result").evaluate((element) => element.scrollIntoView());
}

async function tryOperation(page) {
  const name = "tag/market/GET/api/v1/market/selic/current";
  await page.goto(`${url}/docs#${name}`);
  await page.locator(`section[id$="${name}"] .show-api-client-button`).click();
  await page.getByRole("dialog").last().waitFor();
}

/** Only the visible window: a whole page would show little of a dialog or of a section far down. */
const WINDOWS = {
  key: showKey,
  "docs-try": tryOperation,
  async "dashboard-rotate"(page) {
    await openDashboard(page);
    await page.locator("#rotate-button").click();
  },
};

// ---- Main ----

const pages = Object.entries(pagesOf(await fullCompany(url, platinum)));
const shots = pages.map(([name, path]) => ({ name, show: (page) => page.goto(url + path), isFullPage: true }));
shots.push({ name: "dashboard-open", show: openDashboard, isFullPage: true });
if (!isFew) {
  shots.push(...Object.entries(WINDOWS).map(([name, show]) => ({ name, show, isFullPage: false })));
}

let visits = 0;
async function takeScreenshot(browser, { width, theme, lang }, { name, show, isFullPage }) {
  visits += 1;
  const context = await browser.newContext({
    viewport: { width, height: HEIGHTS[width] },
    deviceScaleFactor: 1,
    colorScheme: theme,
    reducedMotion: "reduce",
    locale: lang === "pt" ? "pt-BR" : "en-US",
    timezoneId: "America/Sao_Paulo",
    // Each visit comes from its own address, which has its own rate limit.
    extraHTTPHeaders: { "X-Forwarded-For": `198.51.100.${visits % 250}` },
  });
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  await show(page);
  await waitUntilLoaded(page);
  const path = join(directory, `${name}-${width}-${theme}-${lang}.png`);
  if (isFullPage) {
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
    await takeScreenshot(browser, view, shot);
  }
}
await browser.close();
receiver.close();
