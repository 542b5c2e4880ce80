// Draws the chart of a company's revenue and net income, and adds earlier fiscal years to its statements with the
// visitor's key.
"use strict";

(() => {
  const section = document.getElementById("statements");
  const chart = document.getElementById("statement-chart");
  const button = document.getElementById("more-years");
  const message = document.getElementById("more-years-message");
  const lang = document.documentElement.lang;

  const tables = [...section.querySelectorAll("table")];
  const fold = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").replace(/\s+/g, " ").toLowerCase().trim();

  // ---- Chart ----

  const WIDTH = 600;
  const HEIGHT = 180;
  const LABEL_HEIGHT = 28;

  const svg = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    element.textContent = text ?? "";
    return element;
  };

  /** The values of a figure, one for each year. It has several rows if the company changed its chart of accounts. */
  const valuesOf = (figure, years) => {
    const rows = [...section.querySelectorAll(`tr[data-figure="${figure}"]`)];
    return years.map((_, column) => {
      const digits = rows.map((row) => row.cells[column + 1]?.dataset.value).find((value) => value !== undefined);
      return digits === undefined ? null : Number(digits);
    });
  };

  const draw = () => {
    const years = [...tables[0].querySelectorAll("th[data-end]")].map((heading) => heading.textContent);
    const figures = ["revenue", "net-income"].map((name) => ({ name, values: valuesOf(name, years) }));
    const all = figures.flatMap(({ values }) => values).filter((value) => value !== null);
    const highest = Math.max(0, ...all);
    const lowest = Math.min(0, ...all);
    if (highest === lowest) {
      chart.closest("figure").hidden = true;
      return;
    }
    const plotHeight = HEIGHT - LABEL_HEIGHT;
    const y = (value) => ((highest - value) / (highest - lowest)) * plotHeight;
    const slot = WIDTH / years.length;
    const bar = Math.min(slot / 3, 60);
    chart.replaceChildren();
    years.forEach((year, index) => {
      // The newest year comes first in the table, and last in the chart.
      const middle = slot * (years.length - index - 0.5);
      figures.forEach(({ name, values }, position) => {
        const value = values[index];
        if (value !== null) {
          const top = Math.min(y(value), y(0));
          const x = middle + (position - 1) * bar;
          const height = Math.max(Math.abs(y(value) - y(0)), 1);
          chart.append(svg("rect", { class: name, x, y: top, width: bar - 2, height }));
        }
      });
      chart.append(svg("text", { x: middle, y: HEIGHT - 6, "text-anchor": "middle" }, year));
    });
    chart.append(svg("line", { x1: 0, x2: WIDTH, y1: y(0), y2: y(0) }));
    chart.dataset.years = years.length;
  };

  // ---- Earlier years ----

  /** As on the rest of the page: digits grouped, and a minus sign instead of a hyphen. */
  const format = (digits) => {
    const value = Number(digits) / Number(section.dataset.divisor);
    return value.toLocaleString(lang, { maximumFractionDigits: 10 }).replace("-", "−");
  };

  const fetchStatement = async (statement) => {
    const query = new URLSearchParams({
      statement,
      period: "annual",
      layout: "table",
      comparatives: "true",
      numbers: "string",
      scope: section.dataset.scope,
      from: section.dataset.from,
    });
    const said = await vintem.call(`${section.dataset.path}?${query}`, { key: vintem.key() });
    if (!said.ok) {
      throw new Error(said.body?.message || section.dataset.failed);
    }
    return said.body;
  };

  /** The filed periods that the table lacks, newest first, each with the period that repeats it a year later. */
  const missingPeriods = (periods, table) => {
    const shown = new Set([...table.querySelectorAll("th[data-end]")].map((heading) => heading.dataset.end));
    return periods
      .map((period, index) => ({ ...period, index }))
      .filter((period) => !period.comparative && !shown.has(period.period_end))
      .map((period) => ({
        ...period,
        repeated: periods.findIndex((other) => other.comparative && other.period_end === period.period_end),
      }));
  };

  /** The cell of a year; the figure is undefined if the account has no value. */
  const cellOf = (figure) => {
    const cell = document.createElement("td");
    if (figure === undefined) {
      cell.textContent = "–";
      return cell;
    }
    const { value, later } = figure;
    cell.dataset.value = value;
    cell.textContent = format(value);
    if (later !== null && Number(later) !== Number(value)) {
      const mark = document.createElement("span");
      mark.className = "restated";
      mark.textContent = `${section.dataset.restated} ${format(later)}`;
      cell.append(mark);
    }
    return cell;
  };

  const extend = (table, bodies) => {
    const ends = bodies.map((body) => missingPeriods(body.periods, table));
    const labels = [...new Set(ends.flat().map((period) => period.period_end))].sort().reverse();
    for (const end of labels) {
      const heading = document.createElement("th");
      heading.scope = "col";
      heading.dataset.end = end;
      heading.textContent = `${end.slice(5, 7)}/${end.slice(0, 4)}`;
      table.tHead.rows[0].append(heading);
    }
    for (const row of table.tBodies[0].rows) {
      for (const end of labels) {
        row.append(cellOf(figureOf(row.dataset, end, bodies, ends)));
      }
    }
    table.classList.add("all-years");
  };

  /** The value of an account in a year. Cash flow statements have rows of two methods, and one of them has the value. */
  const figureOf = ({ account, name }, end, bodies, ends) => {
    const isSame = (one) => one.fixed && one.account === account && fold(one.name) === fold(name);
    const figures = bodies.flatMap((body, at) => {
      const period = ends[at].find((one) => one.period_end === end);
      const rows = period ? body.data.filter(isSame) : [];
      return rows.map((one) => ({ value: one.values[period.index], later: one.values[period.repeated] ?? null }));
    });
    return figures.find(({ value }) => value !== null);
  };

  const loadMore = async () => {
    const loaded = await Promise.all(
      tables.map((table) => Promise.all(table.dataset.statements.split(" ").map(fetchStatement))),
    );
    tables.forEach((table, index) => extend(table, loaded[index]));
    draw();
  };

  let loading = false;
  button.addEventListener("click", async () => {
    if (loading) {
      return;
    }
    loading = true;
    message.textContent = "";
    try {
      await loadMore();
      message.textContent = section.dataset.loaded;
      // The button had the focus.
      message.focus();
      button.hidden = true;
    } catch (error) {
      message.textContent = error instanceof TypeError ? section.dataset.failed : error.message;
    } finally {
      loading = false;
    }
  });

  draw();
  // The button is disabled in the HTML, because it does nothing without this script.
  button.disabled = false;
})();
