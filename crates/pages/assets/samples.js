// Code samples for each operation in /docs, in place of those that Scalar generates. checks/docs/samples runs them.
// They are added to the OpenAPI description before Scalar renders it, together with the plan of each operation.
//
// vintemSamples(description, baseUrl, key) returns the OpenAPI description with `x-codeSamples` and `x-badges`. Without
// a key (null), calls that need one show a placeholder.
"use strict";

// `var` makes it global wherever the script runs.
var vintemSamples = (() => {
  const METHODS = ["get", "put", "post", "patch", "delete"];
  const PLACEHOLDER_KEY = "vtm_your_key_here";
  // Optional one by one, but the operation requires exactly one of several. OpenAPI cannot express that.
  const ONE_OF_SEVERAL = {
    resolve_company: "ticker",
    accumulate_selic: "year",
    accumulate_cdi: "year",
    accumulate_ipca: "year",
    accumulate_fx: "year",
    accumulate_series: "year",
  };
  // Statuses that the sample handles. Power Query itself retries 429 and 503 after `Retry-After`.
  const REFUSALS = "400, 401, 403, 404, 500";

  function vintemSamples(description, baseUrl, key) {
    for (const [path, item] of Object.entries(description.paths)) {
      for (const method of METHODS.filter((name) => item[name])) {
        const operation = item[method];
        const call = readCall({ description, baseUrl, key, path, item, method, operation });
        operation["x-codeSamples"] = samplesOf(call);
        operation["x-badges"] = [{ name: capitalised(planOf(operation)), position: "after" }];
      }
    }
    return description;
  }

  function samplesOf(call) {
    const samples = [
      { lang: "shell", label: "curl", source: curl(call) },
      { lang: "python", label: "Python", source: python(call) },
      { lang: "javascript", label: "JavaScript", source: javaScript(call) },
      { lang: "r", label: "R", source: r(call) },
    ];
    if (call.method === "GET" && call.answers === "json") {
      samples.push({ lang: "javascript", label: "Google Sheets", source: appsScript(call) });
      samples.push({ lang: "powerquery", label: "Excel", source: powerQuery(call) });
    }
    return samples;
  }

  // Reading the OpenAPI description

  /** The content of a sample, independent of the language. */
  function readCall({ description, baseUrl, key, path, item, method, operation }) {
    const find = (node) => resolve(description, node);
    const parameters = [...(item.parameters ?? []), ...(operation.parameters ?? [])].map(find);
    const example = (parameter) => String(exampleOf(parameter, find));
    const body = jsonOf(find(operation.requestBody));
    const headers = {};
    if (key || takesKey(operation)) {
      headers["X-API-Key"] = key || PLACEHOLDER_KEY;
    }
    if (body) {
      headers["Content-Type"] = "application/json";
    }
    const filled = path.replace(/\{([^}]+)\}/g, (_, name) =>
      encodeURIComponent(example(parameters.find((one) => one.in === "path" && one.name === name))),
    );
    const query = parameters
      .filter((one) => one.in === "query" && (one.required || one.name === ONE_OF_SEVERAL[operation.operationId]))
      // Commas need no escape in a query and are easier to read.
      .map((one) => `${one.name}=${encodeURIComponent(example(one)).replaceAll("%2C", ",")}`);
    return {
      id: operation.operationId,
      method: method.toUpperCase(),
      url: baseUrl.replace(/\/+$/, "") + filled + (query.length ? `?${query.join("&")}` : ""),
      headers,
      body: body && exampleOf(body, find),
      file: decodeURIComponent(filled).split(/[/\\]/).at(-1),
      ...readAnswer(operation, find),
    };
  }

  /** `answers`: json, text, file or nothing. `rows`: the field with the list, whose items are `rowsAre`. */
  function readAnswer(operation, find) {
    const status = Object.keys(operation.responses).find((one) => one.startsWith("2"));
    const response = find(operation.responses[status]);
    const types = Object.keys(response.content ?? {});
    if (types.length === 0) {
      return { answers: "nothing" };
    }
    if (types.some((type) => !/^text\/|json$|yaml$/.test(type))) {
      return { answers: "file" };
    }
    const json = jsonOf(response);
    if (!json) {
      return { answers: "text" };
    }
    const properties = propertiesOf(json.schema, find);
    const rows = ["data", "plans"].find((name) => find(properties[name])?.type === "array");
    const isScalar = rows && !["object", undefined].includes(find(find(properties[rows]).items).type);
    return { answers: "json", rows, rowsAre: isScalar ? "values" : "records" };
  }

  function resolve(description, node) {
    while (node?.$ref) {
      const names = node.$ref.slice(2).split("/");
      node = names.reduce((at, name) => at[name.replaceAll("~1", "/").replaceAll("~0", "~")], description);
    }
    return node;
  }

  function jsonOf(message) {
    return message?.content?.["application/json"];
  }

  function propertiesOf(schema, find) {
    const { properties, allOf = [], oneOf = [] } = find(schema) ?? {};
    // Of several forms, the first is what a request without further parameters gets.
    const parts = [...allOf, ...oneOf.slice(0, 1)];
    return Object.assign({}, ...parts.map((part) => propertiesOf(part, find)), properties);
  }

  function exampleOf(node, find) {
    const schema = find(node.schema) ?? {};
    const first = find(Object.values(node.examples ?? {})[0])?.value;
    return [node.example, first, schema.example, schema.default, schema.enum?.[0]].find((one) => one !== undefined);
  }

  function planOf(operation) {
    return operation["x-required-plan"] ?? "free";
  }

  function takesKey(operation) {
    const isOpen = !operation.security || operation.security.some((way) => Object.keys(way).length === 0);
    return !isOpen || planOf(operation) !== "free";
  }

  function capitalised(word) {
    return word[0].toUpperCase() + word.slice(1);
  }

  // Escaping string literals for each language

  function shellText(text) {
    return `'${text.replaceAll("\0", "").replaceAll("'", "'\\''")}'`;
  }

  /** JSON escapes mean the same in JavaScript and in Python. */
  function jsonText(text) {
    return JSON.stringify(text).replace(/[\x7f-\x9f\u2028\u2029]/g, unicodeEscape);
  }

  /** Same as JSON, but R strings cannot contain a zero byte. */
  function rText(text) {
    return jsonText(text.replaceAll("\0", ""));
  }

  function mText(text) {
    const escape = (one) => ({ '"': '""', "#": "#(#)" })[one] ?? `#(${hex(one)})`;
    return `"${text.replace(/["\x00-\x1f\x7f-\x9f\u2028\u2029]|#(?=\()/g, escape)}"`;
  }

  function unicodeEscape(one) {
    return `\\u${hex(one)}`;
  }

  function hex(one) {
    return one.charCodeAt(0).toString(16).padStart(4, "0");
  }

  // Values

  const isWord = (name) => /^[A-Za-z]\w*$/.test(name);
  const JAVASCRIPT = {
    text: jsonText,
    words: { true: "true", false: "false", null: "null" },
    list: (items) => `[${items}]`,
    field: (name, value) => `${isWord(name) ? name : jsonText(name)}: ${value}`,
    record: (fields) => (fields ? `{ ${fields} }` : "{}"),
  };
  const PYTHON = {
    text: jsonText,
    words: { true: "True", false: "False", null: "None" },
    list: (items) => `[${items}]`,
    field: (name, value) => `${jsonText(name)}: ${value}`,
    record: (fields) => `{${fields}}`,
  };
  const R = {
    text: rText,
    words: { true: "TRUE", false: "FALSE", null: "NA" },
    // auto_unbox would turn a vector of one into a scalar.
    list: (items) => `list(${items})`,
    field: (name, value) => `${isWord(name) ? name : rText(name)} = ${value}`,
    record: (fields) => (fields ? `list(${fields})` : "setNames(list(), character())"),
  };

  function literal(value, language) {
    if (typeof value === "string") {
      return language.text(value);
    }
    if (Array.isArray(value)) {
      return language.list(value.map((item) => literal(item, language)).join(", "));
    }
    if (value && typeof value === "object") {
      const fields = Object.entries(value).map(([name, field]) => language.field(name, literal(field, language)));
      return language.record(fields.join(", "));
    }
    return language.words[value] ?? String(value);
  }

  // One function per language. Errors are always JSON, whatever format was requested; `message` says what to do.

  function curl(call) {
    const { answers, method, headers, body, url } = call;
    const file = shellText(call.file);
    const options = ["curl -sS --fail-with-body"];
    if (answers === "file") {
      options[0] += ` -o ${file}`;
    }
    if (answers === "nothing") {
      options[0] += " -w '%{http_code}\\n'";
    }
    if (method !== "GET") {
      options[0] += ` -X ${method}`;
    }
    for (const [name, value] of Object.entries(headers)) {
      options.push(`-H ${shellText(`${name}: ${value}`)}`);
    }
    if (body !== undefined) {
      options.push(`-d ${shellText(JSON.stringify(body))}`);
    }
    options.push(shellText(url));
    const command = options.join(options.length > 2 ? " \\\n  " : " ");
    return answers === "file" ? `${command} ||\n  { cat ${file} >&2; false; }` : command;
  }

  function python(call) {
    const { answers, method, headers, body, url } = call;
    const address = jsonText(url);
    const isPlain = method === "GET" && Object.keys(headers).length === 0;
    const lines = [
      "import json",
      ...(answers === "file" ? ["import shutil"] : []),
      "from urllib.error import HTTPError",
      `from urllib.request import ${isPlain ? "urlopen" : "Request, urlopen"}`,
      "",
    ];
    if (!isPlain) {
      lines.push(`request = Request(${address}${method === "GET" ? "" : `, method="${method}"`})`);
    }
    for (const [name, value] of Object.entries(headers)) {
      lines.push(`request.add_header(${jsonText(name)}, ${jsonText(value)})`);
    }
    if (body !== undefined) {
      lines.push(`request.data = json.dumps(${literal(body, PYTHON)}).encode()`);
    }
    const opened = `urlopen(${isPlain ? address : "request"}) as response`;
    const [into, result] = {
      json: ["", "print(json.dumps(json.load(response), indent=2, ensure_ascii=False))"],
      text: ["", "print(response.read().decode())"],
      file: [`, open(${jsonText(call.file)}, "wb") as file`, "shutil.copyfileobj(response, file)"],
      nothing: ["", "print(response.status)"],
    }[answers];
    lines.push(
      "try:",
      `    with ${opened}${into}:`,
      `        ${result}`,
      "except HTTPError as error:",
      '    raise SystemExit(json.load(error)["message"])',
    );
    return lines.join("\n");
  }

  function javaScript(call) {
    const { answers, method, headers, body, url } = call;
    const options = [];
    if (method !== "GET") {
      options.push(`method: "${method}"`);
    }
    if (Object.keys(headers).length > 0) {
      options.push(`headers: ${literal(headers, JAVASCRIPT)}`);
    }
    if (body !== undefined) {
      options.push(`body: JSON.stringify(${literal(body, JAVASCRIPT)})`);
    }
    const given = options.length ? `, {\n${options.map((one) => `  ${one},\n`).join("")}}` : "";
    const result = {
      json: "console.log(JSON.stringify(await response.json(), null, 2));",
      text: "console.log(await response.text());",
      file: `await writeFile(${jsonText(call.file)}, response.body);`,
      nothing: "console.log(response.status);",
    }[answers];
    return [
      ...(answers === "file" ? ['import { writeFile } from "node:fs/promises";', ""] : []),
      `const response = await fetch(${jsonText(url)}${given});`,
      "if (!response.ok) throw new Error((await response.json()).message);",
      result,
    ].join("\n");
  }

  function r(call) {
    return call.method === "GET" ? rGet(call) : rSend(call);
  }

  /** Base R reports only the status of an error and drops the body. */
  function rGet({ answers, headers, url, file }) {
    const given = Object.entries(headers).map(([name, value]) => `${rText(name)} = ${rText(value)}`);
    const withHeaders = given.length ? `, headers = c(${given.join(", ")})` : "";
    if (answers === "file") {
      return `download.file(${rText(url)},\n  ${rText(file)}, mode = "wb"${withHeaders})`;
    }
    const connection = `connection <- url(${rText(url)}${withHeaders && withHeaders.replace(", ", ",\n  ")})`;
    if (answers === "text") {
      return [connection, "writeLines(readLines(connection, warn = FALSE))", "close(connection)"].join("\n");
    }
    return ["library(jsonlite)", "", connection, "answer <- fromJSON(connection)", "print(answer)"].join("\n");
  }

  function rSend({ answers, method, headers, body, url }) {
    const given = Object.entries(headers).map(([name, value]) => `  "-H", ${rText(`${name}: ${value}`)},`);
    if (body !== undefined) {
      given.push(`  "-d", toJSON(${literal(body, R)}, auto_unbox = TRUE),`);
    }
    return [
      "library(jsonlite)",
      "",
      "# Base R can send nothing but GET, so the program curl does it.",
      "file <- tempfile()",
      'status <- system2("curl", shQuote(c(',
      `  "-sS", "--fail-with-body", "-o", file, "-X", "${method}",`,
      ...given,
      `  ${rText(url)}`,
      ")))",
      "if (status != 0) stop(fromJSON(file)$message)",
      answers === "nothing" ? 'cat("Done.\\n")' : "print(answer <- fromJSON(file))",
    ].join("\n");
  }

  /** A custom function: its return value fills the cells below and to the right. */
  function appsScript({ id, headers, url, rows, rowsAre }) {
    const name = `VINTEM_${id.toUpperCase()}`;
    const given = Object.keys(headers).length ? `    headers: ${literal(headers, JAVASCRIPT)},\n` : "";
    // A cell holds at most 50,000 characters.
    const cell = [
      "  const cell = (value) =>",
      '    value && typeof value === "object" ? JSON.stringify(value).slice(0, 50000) : value ?? "";',
    ].join("\n");
    let table = [cell, "  return Object.entries(answer).map(([name, value]) => [name, cell(value)]);"];
    if (rows && rowsAre === "values") {
      table = [`  return answer.${rows}.map((value) => [value]);`];
    } else if (rows) {
      table = [
        cell,
        `  const names = [...new Set(answer.${rows}.flatMap(Object.keys))];`,
        '  if (names.length === 0) return "no rows";',
        `  return [names, ...answer.${rows}.map((row) => names.map((name) => cell(row[name])))];`,
      ];
    }
    return [
      `// Extensions > Apps Script; then write =${name}() into a cell.`,
      `function ${name}() {`,
      `  const response = UrlFetchApp.fetch(${jsonText(url)}, {\n${given}    muteHttpExceptions: true,\n  });`,
      "  const answer = JSON.parse(response.getContentText());",
      "  if (response.getResponseCode() !== 200) throw new Error(answer.message);",
      ...table,
      "}",
    ].join("\n");
  }

  function powerQuery({ headers, url, rows, rowsAre }) {
    const given = Object.entries(headers).map(([name, value]) => `#${mText(name)} = ${mText(value)}`);
    let table = ["    Result = Record.ToTable(Checked)"];
    if (rows && rowsAre === "values") {
      table = [`    Result = Table.FromList(Checked[${rows}], Splitter.SplitByNothing(), {"value"})`];
    } else if (rows) {
      table = [
        `    Names = List.Union(List.Transform(Checked[${rows}], Record.FieldNames)),`,
        `    Result = Table.FromRecords(Checked[${rows}], Names, MissingField.UseNull)`,
      ];
    }
    return [
      "// Data > Get Data > Blank Query > Advanced Editor. Connect as Anonymous.",
      "let",
      `    Source = Web.Contents(${mText(url)}, [`,
      ...(given.length ? [`        Headers = [${given.join(", ")}],`] : []),
      `        ManualStatusHandling = {${REFUSALS}}`,
      "    ]),",
      "    Answer = Json.Document(Source),",
      "    Status = Value.Metadata(Source)[Response.Status],",
      "    Checked = if Status = 200 then Answer else error Answer[message],",
      ...table,
      "in",
      "    Result",
    ].join("\n");
  }

  return vintemSamples;
})();
