// Runs a Google Apps Script file, with a shim for the Google services that the guides use, and evaluates an expression.
// usage: node apps-script.mjs FILE EXPRESSION. Prints the value of the expression as JSON.
// Script properties are the environment variables that begin with VINTEM_.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createContext, runInContext } from "node:vm";

const [file, expression] = process.argv.slice(2);
const TIME_ZONE = "America/Sao_Paulo";

/** Synchronous, as in Apps Script. */
function fetchSync(address, { headers = {}, method = "get", contentType, payload, muteHttpExceptions = false } = {}) {
  const sentHeaders = contentType ? { ...headers, "Content-Type": contentType } : headers;
  const options = ["--silent", "--show-error", "--include", "--max-time", "60", "--request", method.toUpperCase()];
  for (const [name, value] of Object.entries(sentHeaders)) options.push("--header", `${name}: ${value}`);
  if (payload !== undefined) options.push("--data-binary", payload);
  const output = execFileSync("curl", [...options, address], { encoding: "utf8" });
  const end = output.indexOf("\r\n\r\n");
  const [status, ...lines] = output.slice(0, end).split("\r\n");
  const code = Number(status.split(" ")[1]);
  const text = output.slice(end + 4);
  if (code >= 400 && !muteHttpExceptions) throw new Error(`Request failed for ${address} returned code ${code}.`);
  return {
    getResponseCode: () => code,
    getContentText: () => text,
    getHeaders: () => Object.fromEntries(lines.map((line) => line.split(/: (.*)/s).slice(0, 2))),
  };
}

function formatDate(date, timeZone, format) {
  if (format !== "yyyy-MM-dd") throw new Error(`the shim does not know the format ${format}`);
  const parts = new Intl.DateTimeFormat("en", { timeZone, year: "numeric", month: "2-digit", day: "2-digit" });
  const { year, month, day } = Object.fromEntries(parts.formatToParts(date).map(({ type, value }) => [type, value]));
  return `${year}-${month}-${day}`;
}

const getProperty = (name) => (name.startsWith("VINTEM_") ? (process.env[name] ?? null) : null);
const context = createContext({
  UrlFetchApp: { fetch: fetchSync },
  PropertiesService: { getScriptProperties: () => ({ getProperty }) },
  SpreadsheetApp: { getActive: () => ({ getSpreadsheetTimeZone: () => TIME_ZONE }) },
  Utilities: { formatDate },
});
runInContext(readFileSync(file, "utf8"), context, { filename: file });
console.log(JSON.stringify(runInContext(expression, context)));
