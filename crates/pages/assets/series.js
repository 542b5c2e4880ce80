// Replaces the static chart with one that can be zoomed, using the API call that the page shows. Also runs the
// accumulation form.
"use strict";

(() => {
  const box = document.getElementById("chart");

  const colour = (name) => {
    // Let the browser resolve the color: the raw value is a light-dark() expression.
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    box.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };

  const lang = document.documentElement.lang;
  const dayOf = (seconds) =>
    new Date(seconds * 1000).toLocaleDateString(lang, { dateStyle: "medium", timeZone: "UTC" });
  const number = (value) => (value === null ? "–" : value.toLocaleString(lang, { maximumFractionDigits: 6 }));

  const load = async () => {
    const said = await vintem.call(box.dataset.path, { key: vintem.key() });
    if (!said.ok) {
      // Keep the static chart.
      return null;
    }
    const days = said.body.data.map((row) => Date.parse(row.date) / 1000);
    return [days, said.body.data.map((row) => row[box.dataset.field])];
  };

  const draw = (data) => {
    const { width, height } = box.getBoundingClientRect();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const options = {
      width,
      // Leave room for the legend below the chart.
      height: height - 40,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      series: [
        { label: box.dataset.day, value: (_, seconds) => (seconds === null ? "–" : dayOf(seconds)) },
        {
          label: box.dataset.unit,
          stroke: colour("--accent"),
          width: 1.5,
          fill: colour("--accent-soft"),
          points: { show: false },
          value: (_, value) => number(value),
        },
      ],
      axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map(number) }],
      cursor: { drag: { x: true, y: false } },
    };
    return new uPlot(options, data, box);
  };

  const start = async () => {
    const data = await load();
    if (!data || data[0].length === 0) {
      return;
    }
    let chart = null;
    let shown = data;
    const redraw = () => {
      const range = chart && { min: chart.scales.x.min, max: chart.scales.x.max };
      box.replaceChildren();
      chart = draw(shown);
      if (range) {
        chart.setScale("x", range);
      }
    };
    redraw();
    box.dataset.ready = "true";
    document.addEventListener("vintem-theme", redraw);
    addEventListener("resize", () => {
      const { width, height } = box.getBoundingClientRect();
      chart.setSize({ width, height: height - 40 });
    });
    const buttons = [...document.querySelectorAll("[data-from]")];
    const show = (button) => {
      // Cut off earlier values, so that no line from them enters the range.
      const from = Date.parse(button.dataset.from) / 1000;
      const first = data[0].findIndex((day) => day >= from);
      shown = data.map((column) => column.slice(first));
      chart.setData(shown);
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    };
    buttons.forEach((button) => button.addEventListener("click", () => show(button)));
    show(buttons.find((button) => button.getAttribute("aria-pressed") === "true"));
  };

  /** Parses a typed number: `1.000,50` in Portuguese, `1,000.50` in English. */
  const plain = (typed) =>
    lang === "pt-BR" ? typed.trim().replaceAll(".", "").replace(",", ".") : typed.trim().replaceAll(",", "");

  const accumulate = (form) => {
    const result = document.getElementById("accumulated-result");
    const shown = document.getElementById("accumulated-call");
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const asked = new URLSearchParams();
      for (const field of form.querySelectorAll("input")) {
        if (field.value.trim()) {
          const isDate = field.name === "from" || field.name === "to";
          asked.set(field.name, isDate ? field.value : plain(field.value));
        }
      }
      const path = `${form.dataset.path}?${asked}`;
      shown.textContent = `GET ${path}`;
      try {
        const said = await vintem.call(path, { key: vintem.key() });
        result.classList.toggle("problem", !said.ok);
        result.textContent = said.ok ? describe(form, said) : said.body?.message || form.dataset.failed;
      } catch {
        result.classList.add("problem");
        result.textContent = form.dataset.failed;
      }
    });
    form.querySelector("button").disabled = false;
  };

  /** Reads the digits from the text, because JavaScript numbers would lose some of them. */
  const exact = (text, field) => text.match(new RegExp(`"${field}":\\s*"?(-?[0-9.]+)`))?.[1] ?? "–";

  const describe = (form, said) => {
    const local = (digits) => (lang === "pt-BR" ? digits.replace(".", ",") : digits);
    const { months, days, message } = said.body;
    const counted = months === undefined ? `${days} ${form.dataset.days}` : `${months} ${form.dataset.months}`;
    const result = `R$ ${local(exact(said.text, "result"))} · ${form.dataset.factor} ${local(exact(said.text, "factor"))}`;
    return [result, counted].join(" · ") + (message ? `. ${message}` : "");
  };

  start().catch(() => {});
  const form = document.getElementById("accumulate");
  if (form) {
    accumulate(form);
  }
})();
