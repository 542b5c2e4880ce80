// Parses documents in M, the language of Power Query.
// usage: node powerquery.mjs, with a JSON array of documents on standard input. Prints `index: message` for each document
// that is not valid M, and then exits with 1. checks/docs/guides --install fetches the parser.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(new URL("../../target/tools/guides/node/", import.meta.url));
const { DefaultSettings, TaskUtils } = require("@microsoft/powerquery-parser");

const documents = JSON.parse(readFileSync(0, "utf8"));
for (const [index, text] of documents.entries()) {
  const task = await TaskUtils.tryLexParse(DefaultSettings, text);
  if (TaskUtils.isError(task)) {
    console.log(`${index}: ${task.error.message.replaceAll("\n", " ")}`);
    process.exitCode = 1;
  }
}
