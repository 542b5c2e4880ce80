// Runs every snippet that samples.js generates from the served OpenAPI description and compares the results with the API.
//
// usage: samples.mjs URL PLATINUM_KEY DIRECTORY NODE_TOOLS, for a served demo with exports and without a worker.
//
// GET: the output of curl, Python and JavaScript is parsed as JSON and must equal the response to our own GET; for R,
// which prints tables, the object that it parsed must. Where values change between requests (CHANGING), only the field
// names are compared. Files must be identical to the byte. Apps Script must return the cells of the same response.
// POST, PATCH, DELETE: run in a sensible order, and the API must show the effect afterwards.
// Then all snippets are generated with texts that would end a string literal, and parsed by each language's own parser.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { join } from "node:path";
import vm from "node:vm";
import { failures, figures, check } from "../lib/report.mjs";

const [url, platinum, workdir, tools] = process.argv.slice(2);
const powerQuery = createRequire(join(tools, "node_modules/"))("@microsoft/powerquery-parser");
vm.runInThisContext(readFileSync(new URL("../../crates/pages/assets/samples.js", import.meta.url), "utf8"));

const CHANGING = ["get_usage", "get_key", "get_status", "get_health"];
const HIGHLIGHTERS = { curl: "shell", "Google Sheets": "javascript", Excel: "powerquery" };
const MAX_LINES = 14;
const PLACEHOLDER = "vtm_your_key_here";
const METHODS = ["get", "put", "post", "patch", "delete"];
const startedAt = Date.now();
const figureNames = ["operations", "snippets", "snippets_run", "empty_lists", "without_key", "refused", "parsed", "hostile"];
figureNames.forEach((name) => (figures[name] = 0));

// Direct API calls

async function get(path, key = platinum) {
  const response = await fetch(url + path, { headers: key ? { "X-API-Key": key } : {} });
  const bytes = Buffer.from(await response.arrayBuffer());
  return { status: response.status, type: response.headers.get("Content-Type"), bytes, text: bytes.toString() };
}

async function api(path, key) {
  const { status, text } = await get(path, key);
  assert.equal(status, 200, `${path}: ${status} ${text}`);
  return JSON.parse(text);
}

async function post(path, body) {
  const headers = { "X-API-Key": platinum, "Content-Type": "application/json" };
  const response = await fetch(url + path, { method: "POST", headers, body: body && JSON.stringify(body) });
  const text = await response.text();
  assert.ok(response.ok, `${path}: ${response.status} ${text}`);
  return JSON.parse(text);
}

// The OpenAPI description

function operationsOf(description) {
  return Object.entries(description.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({ path, method, ...item[method] })),
  );
}

function parameterOf(description, given) {
  return given.$ref ? description.components.parameters[given.$ref.split("/").at(-1)] : given;
}

/** The address that the snippets of an operation should call, built independently of samples.js. */
function addressOf(description, operation) {
  let path = operation.path;
  const query = new URLSearchParams();
  for (const given of operation.parameters) {
    const { in: place, name, required, example, examples } = parameterOf(description, given);
    const value = example ?? Object.values(examples ?? {})[0]?.value;
    if (place === "path") {
      path = path.replace(`{${name}}`, encodeURIComponent(value));
    } else if (
      required ||
      (operation.operationId === "resolve_company" && name === "ticker") ||
      (operation.operationId.startsWith("accumulate_") && name === "year")
    ) {
      query.append(name, value);
    }
  }
  return `${path}?${query}`;
}

/**
 * A copy with other examples: `parameters(path, name)` and `bodies[operationId]` return the replacements. The examples in
 * the file name things that readers may have; the demo has its own.
 */
function withExamples(description, parameters, bodies = {}) {
  const copy = structuredClone(description);
  for (const [path, item] of Object.entries(copy.paths)) {
    for (const method of METHODS.filter((name) => item[name])) {
      const operation = item[method];
      operation.parameters = (operation.parameters ?? []).map((given) => {
        const found = parameterOf(copy, given);
        const example = parameters(path, found.name);
        return example === undefined ? given : { ...found, example, examples: undefined };
      });
      if (bodies[operation.operationId]) {
        operation.requestBody.content["application/json"].example = bodies[operation.operationId];
      }
    }
  }
  return copy;
}

function samplesOf(description, base, key) {
  const made = {};
  for (const operation of operationsOf(globalThis.vintemSamples(structuredClone(description), base, key))) {
    const sources = operation["x-codeSamples"].map(({ label, source }) => [label, source]);
    const langs = operation["x-codeSamples"].map(({ lang }) => lang);
    made[operation.operationId] = { ...operation, langs, sources: Object.fromEntries(sources) };
  }
  return made;
}

function isOpen(operation) {
  return operation.security.some((way) => Object.keys(way).length === 0);
}

// The languages

let directories = 0;
function newDirectory() {
  const directory = join(workdir, String((directories += 1)));
  mkdirSync(directory);
  return directory;
}

/** A process that runs one snippet after another: one line of JSON in, one line out. */
class Batch {
  constructor(command, program, name) {
    const file = join(workdir, name);
    writeFileSync(file, program);
    const env = { ...process.env, LANG: "C.UTF-8", LC_ALL: "C.UTF-8" };
    this.process = spawn(command, [file], { env, stdio: ["pipe", "pipe", "pipe"] });
    this.errors = "";
    this.process.stderr.on("data", (data) => (this.errors = (this.errors + data).slice(-2000)));
    this.lines = createInterface({ input: this.process.stdout })[Symbol.asyncIterator]();
  }

  async ask(job) {
    this.process.stdin.write(`${JSON.stringify(job)}\n`);
    const { value, done } = await this.lines.next();
    assert.ok(!done, `the process ended: ${this.errors}`);
    return JSON.parse(value);
  }
}

const python = new Batch(
  "python3",
  String.raw`
import ast, contextlib, io, json, os, runpy, sys

def look(source):
    tree = ast.parse(source)
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
            node.value = ""
    return {"texts": texts, "shape": ast.dump(tree)}

def run(job):
    output = io.StringIO()
    error = None
    os.chdir(job["directory"])
    with open("snippet.py", "w", encoding="utf-8", newline="") as file:
        file.write(job["source"])
    try:
        with contextlib.redirect_stdout(output):
            runpy.run_path("snippet.py", run_name="__main__")
    except BaseException as raised:
        error = str(raised) or repr(raised)
    return {"output": output.getvalue(), "error": error}

for line in sys.stdin:
    job = json.loads(line)
    try:
        answer = look(job["source"]) if job.get("look") else run(job)
    except SyntaxError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
`,
  "batch.py",
);

const r = new Batch(
  "Rscript",
  String.raw`
look <- function(source) {
  data <- getParseData(parse(text = source, keep.source = TRUE))
  data <- data[data$terminal, ]
  is_text <- data$token == "STR_CONST"
  texts <- vapply(data$text[is_text], function(one) eval(parse(text = one)), "", USE.NAMES = FALSE)
  list(texts = as.list(texts), shape = paste(ifelse(is_text, "", data$text), data$token, collapse = " "))
}

run <- function(job) {
  setwd(job$directory)
  own <- new.env(parent = globalenv())
  warned <- character()
  note <- function(warning) {
    warned <<- c(warned, conditionMessage(warning))
    invokeRestart("muffleWarning")
  }
  error <- NULL
  output <- capture.output(error <- tryCatch({
    withCallingHandlers(eval(parse(text = job$source), own), warning = note)
    NULL
  }, error = conditionMessage))
  # The next snippet has to load it itself.
  if ("package:jsonlite" %in% search()) detach("package:jsonlite")
  reference <- if (!is.null(job$reference)) jsonlite::fromJSON(job$reference)
  list(
    output = paste(output, collapse = "\n"),
    error = if (!is.null(error)) paste(c(error, warned), collapse = "; "),
    answer = own$answer,
    same = identical(own$answer, reference),
    same_names = identical(names(own$answer), names(reference))
  )
}

input <- file("stdin", "r", encoding = "UTF-8")
while (length(line <- readLines(input, 1)) > 0) {
  job <- jsonlite::fromJSON(line)
  answer <- tryCatch(if (isTRUE(job$look)) look(job$source) else run(job),
    error = function(error) list(error = conditionMessage(error)))
  cat(jsonlite::toJSON(answer, auto_unbox = TRUE, null = "null", digits = NA), "\n", sep = "")
  flush(stdout())
}
`,
  "batch.R",
);

function runCurl(directory, source) {
  return new Promise((resolve) => {
    const child = spawn("bash", ["-euo", "pipefail", "-c", source], { cwd: directory });
    const streams = { output: "", errors: "" };
    child.stdout.on("data", (data) => (streams.output += data.toString("latin1")));
    child.stderr.on("data", (data) => (streams.errors += data.toString("latin1")));
    child.on("close", (code) => {
      const output = Buffer.from(streams.output, "latin1").toString();
      const errors = Buffer.from(streams.errors, "latin1").toString();
      resolve({ output, error: code === 0 ? null : `ended with ${code}: ${output}${errors}` });
    });
  });
}

/** Runs as a separate module in this process. Nothing else may write to the console meanwhile. */
async function runJavaScript(directory, source) {
  const file = join(directory, "snippet.mjs");
  writeFileSync(file, source);
  const log = console.log;
  const before = process.cwd();
  const lines = [];
  console.log = (...values) => lines.push(values.join(" "));
  process.chdir(directory);
  try {
    await import(file);
    return { output: lines.join("\n"), error: null };
  } catch (error) {
    return { output: lines.join("\n"), error: String(error.message) };
  } finally {
    process.chdir(before);
    console.log = log;
  }
}

/** A shim for the part of Google's service that the snippets use. It is synchronous. */
const urlFetchApp = {
  fetch(address, { headers = {}, muteHttpExceptions }) {
    const given = Object.entries(headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
    const options = ["-sS", "-w", "\n%{http_code}", ...given, address];
    const output = execFileSync("curl", options, { maxBuffer: 2 ** 26 }).toString();
    const end = output.lastIndexOf("\n");
    const status = Number(output.slice(end + 1));
    assert.ok(muteHttpExceptions || status < 400, `Request failed returned code ${status}`);
    return { getContentText: () => output.slice(0, end), getResponseCode: () => status };
  },
};

function runAppsScript(source, id, service = urlFetchApp) {
  return new Function("UrlFetchApp", `${source}\nreturn VINTEM_${id.toUpperCase()}();`)(service);
}

const LANGUAGES = {
  curl: runCurl,
  Python: (directory, source) => python.ask({ directory, source }),
  JavaScript: runJavaScript,
  R: (directory, source, reference) => r.ask({ directory, source, reference }),
};

/** Runs a snippet, which must succeed, and returns its result. */
async function run(label, source, reference) {
  const directory = newDirectory();
  const done = await LANGUAGES[label](directory, source, reference);
  assert.equal(done.error, null, done.error);
  return { ...done, directory };
}

// GET

/** Only the field names, for responses whose values change between requests. */
function fieldNames(value) {
  if (Array.isArray(value)) {
    return value.slice(0, 1).map(fieldNames);
  }
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, fieldNames(field)]));
  }
  return "a value";
}

function assertSameJson(id, ours, theirs) {
  const view = CHANGING.includes(id) ? fieldNames : (value) => value;
  assert.deepEqual(view(ours), view(theirs));
}

const lines = (text) => text.replaceAll("\r", "").trimEnd();

async function checkGet(label, operation, wantedResponse) {
  const id = operation.operationId;
  const isJson = wantedResponse.type === "application/json";
  const done = await run(label, operation.sources[label], isJson ? wantedResponse.file : undefined);
  if (wantedResponse.isBinary) {
    const saved = readFileSync(join(done.directory, wantedResponse.name));
    assert.ok(saved.equals(wantedResponse.bytes), `${saved.length} bytes and not ${wantedResponse.bytes.length}`);
  } else if (!isJson) {
    assert.equal(lines(done.output), lines(wantedResponse.text));
  } else if (label === "R") {
    assert.ok(done.output.length > 0, "it prints nothing");
    assert.ok(CHANGING.includes(id) ? done.same_names : done.same, `R has read something else: ${done.output}`);
  } else {
    assertSameJson(id, JSON.parse(done.output), JSON.parse(wantedResponse.text));
  }
  figures.snippets_run += 1;
}

/** The table that a response should produce in a spreadsheet, implemented independently of samples.js. */
function cellsOf(answer) {
  const cell = (value) => (value instanceof Object ? JSON.stringify(value).slice(0, 50000) : (value ?? ""));
  const rows = answer.data ?? answer.plans;
  if (!rows) {
    return Object.keys(answer).map((name) => [name, cell(answer[name])]);
  }
  if (rows.length === 0) {
    return "no rows";
  }
  if (typeof rows[0] !== "object") {
    return rows.map((value) => [value]);
  }
  const names = [];
  for (const row of rows) {
    names.push(...Object.keys(row).filter((name) => !names.includes(name)));
  }
  return [names, ...rows.map((row) => names.map((name) => cell(row[name])))];
}

function checkAppsScript(operation, wantedResponse) {
  const { operationId: id, sources } = operation;
  const cells = runAppsScript(sources["Google Sheets"], id);
  const expected = cellsOf(JSON.parse(wantedResponse.text));
  if (CHANGING.includes(id)) {
    assert.deepEqual(cells.map((row) => row.length), expected.map((row) => row.length));
    assert.deepEqual(cells[0][0], expected[0][0]);
  } else {
    assert.deepEqual(cells, expected);
  }
  figures.snippets_run += 1;
}

/** Decodes an M text literal by the specification; the parser leaves hexadecimal escapes undecoded. */
function decodeMText(literal) {
  const named = { cr: "\r", lf: "\n", tab: "\t", "#": "#" };
  const one = (code) => named[code] ?? String.fromCodePoint(parseInt(code, 16));
  return literal.slice(1, -1).replace(/""|#\(([^)]*)\)/g, (_, codes) => codes?.split(",").map(one).join("") ?? '"');
}

async function parsePowerQuery(source) {
  const task = await powerQuery.TaskUtils.tryLexParse(powerQuery.DefaultSettings, source);
  assert.ok(powerQuery.TaskUtils.isParseStageOk(task), String(task.error?.message));
  const tokens = task.lexerSnapshot.tokens;
  const isText = (token) => token.kind === "TextLiteral";
  return {
    texts: tokens.filter(isText).map((token) => decodeMText(token.data)),
    shape: tokens.map((token) => (isText(token) ? token.kind : token.data)).join(" "),
  };
}

/** The response that a GET snippet should produce, also saved to a file for R to read. */
async function expectedResponse(description, operation, key) {
  const address = addressOf(description, operation);
  const answer = await get(address, key);
  assert.equal(answer.status, 200, `${address}: ${answer.status} ${answer.text.slice(0, 300)}`);
  const file = join(newDirectory(), "answer.json");
  writeFileSync(file, answer.bytes);
  const isBinary = !/^text\/|json|yaml/.test(answer.type);
  return { ...answer, file, isBinary, name: address.split(/[/?]/).at(-2) };
}

async function checkGets(description, samples, key) {
  const gets = Object.values(samples).filter((one) => one.method === "get" && (key || isOpen(one)));
  const expectedById = {};
  for (const one of gets) {
    const request = () => expectedResponse(description, one, key);
    expectedById[one.operationId] = await check(`${one.operationId}, asked directly`, request);
  }
  const answered = gets.filter((one) => expectedById[one.operationId]);
  const loop = async (label) => {
    for (const one of answered) {
      await check(`${one.operationId}, ${label}, ${key ? "with" : "without"} a key`, () =>
        checkGet(label, one, expectedById[one.operationId]),
      );
    }
  };
  await Promise.all(Object.keys(LANGUAGES).map(loop));
  for (const one of answered.filter((one) => one.sources["Google Sheets"])) {
    figures.empty_lists += cellsOf(JSON.parse(expectedById[one.operationId].text)) === "no rows";
    await check(`${one.operationId}, Google Sheets`, () => checkAppsScript(one, expectedById[one.operationId]));
    await check(`${one.operationId}, Excel`, async () => {
      await parsePowerQuery(one.sources.Excel);
      figures.parsed += 1;
    });
  }
  return answered.length;
}

// POST, PATCH, DELETE

/** Nothing listens there, and without a worker nothing is sent. A company of the demo is added to the filter below. */
const WEBHOOK = { url: "http://127.0.0.1:4711/vintem", types: ["filing.published"], filters: { companies: [] } };
const RUN_WRITES = new Set();

async function checkWrites(label, description) {
  const send = async (id, key, ids = {}) => {
    const own = withExamples(description, (path, name) => ids[name], { create_webhook: WEBHOOK });
    const done = await run(label, samplesOf(own, url, key)[id].sources[label]);
    figures.snippets_run += 1;
    RUN_WRITES.add(id);
    if (label === "R") {
      return done.answer;
    }
    return ["delete_webhook", "revoke_key"].includes(id) ? done.output : JSON.parse(done.output);
  };
  const assertNoContent = (output) =>
    assert.ok(label === "R" ? output === null : output.trim() === "204", `it says ${output}`);

  const { id, secret } = await send("create_webhook", platinum);
  const webhook = `/api/v1/webhooks/${id}`;
  const made = await api(webhook);
  assert.deepEqual([made.url, made.types, made.filters.companies], [WEBHOOK.url, WEBHOOK.types, WEBHOOK.filters.companies]);
  const { id: delivery } = await send("test_webhook", platinum, { id });
  assert.deepEqual((await api(`${webhook}/deliveries`)).data.map((one) => one.id), [delivery]);
  assert.equal((await send("replay_delivery", platinum, { id, delivery })).id, delivery);
  const rotated = await send("rotate_webhook", platinum, { id });
  assert.ok(rotated.secret && rotated.secret !== secret, "the secret is the same");
  assert.equal((await send("update_webhook", platinum, { id })).status, "paused");
  assert.equal((await api(webhook)).status, "paused");
  assertNoContent(await send("delete_webhook", platinum, { id }));
  assert.equal((await get(webhook)).status, 404);

  const { api_key: key } = await send("register_key", null);
  const labelled = (await send("update_key", key)).label;
  assert.equal((await api("/api/v1/keys/me", key)).label, labelled);
  const { api_key: next } = await send("rotate_key", key);
  assert.ok(next && next !== key, "the key is the same");
  await api("/api/v1/keys/me", next);
  assertNoContent(await send("revoke_key", next));
  assert.equal((await get("/api/v1/keys/me", next)).status, 401);
}

// Refusals

/** With the placeholder instead of a key, every snippet must fail and say why. */
async function checkRefusal(label, operation) {
  const { message } = JSON.parse((await get("/api/v1/keys/me", PLACEHOLDER)).text);
  const source = operation.sources[label];
  let error;
  if (label === "Google Sheets") {
    assert.throws(() => runAppsScript(source, operation.operationId), { message });
  } else {
    error = (await LANGUAGES[label](newDirectory(), source)).error;
    assert.ok(error, "it does not fail");
    // Base R drops the body of an error response.
    const expected = label === "R" && operation.method === "get" ? "401" : message;
    assert.ok(error.includes(expected), `it says ${error}`);
  }
  figures.refused += 1;
}

// Texts that would end a string literal

const HOSTILE = [
  `'"\\\`$(touch broken)\${globalThis.broken=1}");globalThis.broken=1;//'''"""#(lf)#(#)#"{0}%s\n\r\t\u0085\u2028é\u{1f600}`,
  ..."'\"\\`$#(){}%!\n\r\t\u2028".split(""),
  ...["\\'", '\\"', "'''", '"""', '""', "''", "#(", '#"', "\\\\", "*/-", "</script>", "\\u0027", "'; touch broken; '"],
  '"); globalThis.broken = 1; ("',
  "\\\n",
];
const BENIGN = "x";

/** All snippets, generated with the text in the address, the key and the body. */
function hostileSamples(description, text) {
  const bodies = { create_webhook: { url: text, types: [text], filters: { [text]: [true, null, 1.5] } } };
  return samplesOf(withExamples(description, () => undefined, bodies), baseOf(text), `vtm_${text}`);
}

const baseOf = (text) => `https://vintem.example/${text}`;

async function checkHostile(description, text, ids) {
  const hostile = hostileSamples(description, text);
  const benign = hostileSamples(description, BENIGN);
  for (const id of ids) {
    const operation = hostile[id];
    for (const [label, source] of Object.entries(operation.sources)) {
      await check(`${id}, ${label}, with ${JSON.stringify(text)}`, async () => {
        const body = operation.operationId === "create_webhook" ? [text, true, null, 1.5] : undefined;
        await PARSERS[label]({ id, source, benign: benign[id].sources[label], text, body });
        assert.equal(globalThis.broken, undefined, "code in a text was run");
        figures.hostile += 1;
      });
    }
  }
}

function assertTexts(texts, text, body) {
  assert.ok(texts.some((one) => one.startsWith(`${baseOf(text)}/`)), "the address is another");
  assert.ok(texts.some((one) => one === `vtm_${text}` || one === `X-API-Key: vtm_${text}`), "the key is another");
  assert.ok(!body || texts.includes(text), "the body is another");
}

/** Apart from the contents of texts, the tokens must be the same. */
async function compareParsed(look, { source, benign, text, body }) {
  const ours = await look(source);
  const theirs = await look(benign);
  assert.ok(!ours.error && !theirs.error, ours.error ?? theirs.error);
  assert.equal(ours.shape, theirs.shape);
  assertTexts(ours.texts, text, body);
}

function assertBody(sent, text) {
  assert.deepEqual(JSON.parse(sent), { url: text, types: [text], filters: { [text]: [true, null, 1.5] } });
}

const PARSERS = {
  async curl({ source, benign, text, body }) {
    const directory = newDirectory();
    const args = async (program) => {
      const done = await runCurl(directory, `curl() { printf '%s\\0' "$@"; }\n${program}`);
      assert.equal(done.error, null, done.error);
      return done.output.split("\0");
    };
    const ours = await args(source);
    const theirs = await args(benign);
    assert.equal(ours.length, theirs.length);
    assert.deepEqual(readdirSync(directory), [], "a command in a text was run");
    assertTexts(ours, text);
    if (body) {
      assertBody(ours[ours.indexOf("-d") + 1], text);
    }
  },
  Python: (given) => compareParsed((source) => python.ask({ look: true, source }), given),
  R: (given) =>
    compareParsed((source) => r.ask({ look: true, source }), {
      ...given,
      // R quotes a name that is not a plain word.
      benign: given.benign.replace(" x = ", ' "x" = ').replace("(x = ", '("x" = '),
    }),
  /** There is no separate parser here, so the snippet is run with a fake fetch. */
  async JavaScript({ source, text, body }) {
    const calls = [];
    const realFetch = globalThis.fetch;
    globalThis.fetch = async (...given) => {
      calls.push(given);
      return new Response("{}");
    };
    const done = await runJavaScript(newDirectory(), source);
    globalThis.fetch = realFetch;
    assert.equal(done.error, null, done.error);
    assert.equal(calls.length, 1);
    const [address, { headers, body: sent }] = calls[0];
    assertTexts([address, ...Object.values(headers)], text);
    if (body) {
      assertBody(sent, text);
    }
  },
  "Google Sheets": ({ id, source, text }) => {
    const calls = [];
    const answer = { getContentText: () => '{"data":[],"plans":[]}', getResponseCode: () => 200 };
    runAppsScript(source, id, { fetch: (...given) => calls.push(given) && answer });
    assert.equal(calls.length, 1);
    assertTexts([calls[0][0], ...Object.values(calls[0][1].headers)], text);
  },
  Excel: (given) => compareParsed(parsePowerQuery, given),
};

// Main

const description = await api("/docs/openapi.json");
const company = (await api("/api/v1/companies?limit=100")).data.find((one) => one.tickers.length > 0);
WEBHOOK.filters.companies.push(company.id);
// One with financial statements.
const filing = (await api("/api/v1/filings?category=DFP&limit=1")).data[0];
const webhook = await post("/api/v1/webhooks", WEBHOOK);
const delivery = await post(`/api/v1/webhooks/${webhook.id}/test`);
const demoDescription = withExamples(description, (path, name) => {
  const ids = { companies: company.id, filings: filing.id, webhooks: webhook.id };
  return { id: ids[path.split("/")[3]], delivery: delivery.id, ticker: company.tickers[0] }[name];
});

const operations = operationsOf(description);
const samplesWithKey = samplesOf(demoDescription, url, platinum);
const samplesWithoutKey = samplesOf(demoDescription, url, null);
figures.operations = operations.length;
for (const { operationId: id, method, responses, ...operation } of operations) {
  await check(`${id}, as it is shown`, () => {
    const answersJson = Object.keys(responses["200"]?.content ?? {}).every((type) => /json|csv/.test(type));
    const labels = ["curl", "Python", "JavaScript", "R"];
    if (method === "get" && answersJson) {
      labels.push("Google Sheets", "Excel");
    }
    const { sources, langs, "x-badges": badges } = samplesWithKey[id];
    assert.deepEqual(Object.keys(sources), labels);
    assert.deepEqual(langs, labels.map((label) => HIGHLIGHTERS[label] ?? label.toLowerCase()));
    assert.equal(badges.length, 1);
    assert.match(badges[0].name, /^[A-Z][a-z]+$/);
    assert.equal(badges[0].name.toLowerCase(), operation["x-required-plan"]);
    const takesKey = !isOpen(operation);
    for (const label of labels) {
      figures.snippets += 1;
      assert.ok(sources[label].split("\n").length <= MAX_LINES, `${label} is too long`);
      assert.ok(sources[label].includes(platinum), `${label} is without the key`);
      const withoutKey = samplesWithoutKey[id].sources[label];
      assert.equal(withoutKey.includes("X-API-Key"), takesKey, `${label}, whether it has a header`);
      assert.equal(withoutKey.includes(PLACEHOLDER), takesKey, `${label}, whether it has a placeholder`);
    }
  });
}

await checkGets(demoDescription, samplesWithKey, platinum);
figures.without_key = await checkGets(demoDescription, samplesWithoutKey, null);
assert.ok(figures.without_key >= 5, "hardly anything is open");

for (const label of Object.keys(LANGUAGES)) {
  await check(`what is sent by ${label}`, () => checkWrites(label, description));
}
for (const { operationId: id, method } of operations) {
  await check(id, () => assert.ok(method === "get" || RUN_WRITES.has(id), "there is no step that runs it"));
}

for (const id of ["list_companies", "get_export", "get_key", "create_webhook", "delete_webhook"]) {
  for (const label of Object.keys(samplesWithoutKey[id].sources).filter((label) => label !== "Excel")) {
    await check(`${id}, ${label}, with a key that is none`, () => checkRefusal(label, samplesWithoutKey[id]));
  }
}

const hostileOperations = [
  "list_companies",
  "list_business_days",
  "get_export",
  "show_pricing",
  "create_webhook",
  "delete_webhook",
];
for (const text of HOSTILE) {
  await checkHostile(description, text, text === HOSTILE[0] ? operations.map((one) => one.operationId) : hostileOperations);
}

python.process.stdin.end();
r.process.stdin.end();
for (const failure of failures) {
  console.log(failure);
}
for (const [name, value] of Object.entries(figures)) {
  console.log(`${name}: ${value}`);
}
console.log(`run_seconds: ${((Date.now() - startedAt) / 1000).toFixed(1)}`);
console.log(`failed: ${failures.length}`);
process.exit(failures.length > 0 ? 1 : 0);
