// Loads pages and reads their Server-Timing header: see checks/pages/page-times.
//
// usage: page-times.mjs URL GOLD_KEY, of a served demo that trusts this machine as a proxy.

import assert from "node:assert/strict";

const [url, gold] = process.argv.slice(2);
const LOADS = 200;
const WARM_UP = 5;
const MAX_P99_MS = 5;

async function fetchData(path) {
  const response = await fetch(url + path, { headers: { "X-API-Key": gold } });
  assert.equal(response.status, 200, path);
  return (await response.json()).data;
}

/** The paths in the sitemap that begin with `start`. */
async function sitemapPaths(start) {
  const text = await (await fetch(`${url}/sitemap.xml`)).text();
  const paths = [...text.matchAll(/<loc>(.*?)<\/loc>/g)].map(([, one]) => new URL(one).pathname);
  return paths.filter((path) => path.startsWith(start));
}

const words = (text) => text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter((word) => word.length > 1);

/** What people type: names and parts of them, tickers, CNPJs, subjects of filings; and words with very many hits. */
function queriesOf(companies, filings) {
  const queries = ["selic", "s.a.", "de", "assembleia", "resultados do trimestre", "qqqqqqqqqq", "a"];
  for (const { name, cnpj, tickers } of companies) {
    queries.push(name, words(name).at(-2), cnpj ?? "", cnpj?.slice(0, 6) ?? "", ...tickers);
  }
  for (const { description } of filings) {
    queries.push(description.slice(0, 200), words(description).slice(0, 2).join(" "));
  }
  return [...new Set(queries.filter(Boolean))];
}

/** LOADS items, evenly spread over all of them, so that every kind is included. */
const spread = (all) => Array.from({ length: LOADS }, (_, at) => all[Math.floor((at * all.length) / LOADS)]);

let loads = 0;

/** The durations that the server reports for one load. */
async function loadPage(path) {
  loads += 1;
  const response = await fetch(url + path, {
    headers: {
      Accept: "text/html",
      "Accept-Language": loads % 2 ? "en" : "pt-BR",
      "X-Forwarded-For": `198.18.${loads >> 8}.${loads & 255}`,
    },
  });
  await response.arrayBuffer();
  assert.equal(response.status, 200, `${path}: ${response.status}`);
  const timing = response.headers.get("Server-Timing") ?? "";
  const duration = (name) => Number(new RegExp(`${name};dur=([0-9.]+)`).exec(timing)?.[1]);
  const durations = { total: duration("total"), handler: duration("handler") };
  assert.ok(durations.total >= durations.handler, `${path}: ${timing}`);
  return durations;
}

const percentile = (sorted, share) => sorted[Math.ceil(sorted.length * share) - 1];

const companies = await fetchData("/api/v1/companies?limit=100");
const filings = await fetchData("/api/v1/filings?limit=100");
const queries = queriesOf(companies, filings);
const pages = {
  home: ["/"],
  pricing: ["/pricing"],
  docs: ["/docs"],
  guides: ["/docs/guides"],
  guide: await sitemapPaths("/docs/guides/"),
  dashboard: ["/dashboard"],
  status: ["/status"],
  series: await sitemapPaths("/series/"),
  search: queries.map((query) => `/search?q=${encodeURIComponent(query)}`),
  company: companies.map(({ id }) => `/companies/${id}`),
  terms: ["/terms"],
  privacy: ["/privacy"],
  data: ["/data"],
};

console.log(`loads_of_each: ${LOADS}`);
console.log(`searches: ${new Set(spread(pages.search)).size}`);
let worst = 0;
for (const [name, paths] of Object.entries(pages)) {
  for (const path of spread(paths).slice(0, WARM_UP)) {
    await loadPage(path);
  }
  const samples = [];
  for (const path of spread(paths)) {
    samples.push(await loadPage(path));
  }
  const parts = ["total", "handler"].map((part) => {
    const sorted = samples.map((one) => one[part]).sort((one, other) => one - other);
    const p50 = percentile(sorted, 0.5);
    const p99 = percentile(sorted, 0.99);
    worst = part === "total" ? Math.max(worst, p99) : worst;
    return `${part} p50 ${p50.toFixed(2)} p99 ${p99.toFixed(2)}`;
  });
  console.log(`${name}_ms: ${parts.join(", ")}`);
}
console.log(`worst_page_p99_ms: ${worst.toFixed(2)}`);
process.exit(worst < MAX_P99_MS ? 0 : 1);
