"use strict";
// Draws the report from the JSON in #data. Text reaches the page through textContent only; nothing is fetched.

// The data: JSON, compressed by gzip, as base64 (analysis/report.py: embedded).
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
}

const data = await unpacked(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "style") made.style.cssText = value;
    else if (name in made && !name.startsWith("aria")) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// --- the data ---------------------------------------------------------------------------------------------------------

// Columns as analysis/report.py packs them, to one object per row.
function unpack(packed) {
  const names = Object.keys(packed);
  const columns = names.map((name) => (Array.isArray(packed[name]) ? packed[name] : packed[name].codes.map((code) => packed[name].levels[code])));
  const length = columns.length ? columns[0].length : 0;
  return Array.from({ length }, (_, i) => Object.fromEntries(names.map((name, c) => [name, columns[c][i]])));
}

const sizeOf = (row) => Math.round(Math.log2(row.n * row.rows)); // exact for powers of two; other sizes join their neighbours
const runs = data.runs.map((run) => ({ ...run, rows: null }));

function rowsOf(index) {
  const run = runs[index];
  run.rows ??= unpack(run.results).map((row) => ({
    ...row,
    size: sizeOf(row),
    share: row.limit_us === null || row.time_us === null ? null : row.limit_us / row.time_us,
    gbps: row.time_us === null ? null : row.useful_bytes / row.time_us / 1e3,
    error: row.rel_l2 === null || row.encoding || !(row.dtype in data.ideal) ? null : row.rel_l2 / data.ideal[row.dtype],
    timed: row.time_us !== null,
  }));
  return run.rows;
}

// --- numbers as text --------------------------------------------------------------------------------------------------

const significant = (value, digits = 3) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size < 1e-2 || size >= 1e5 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
};
const timeText = (us) => (us < 0.9995 ? `${(us * 1e3).toPrecision(3)} ns` : us < 999.5 ? `${us.toPrecision(3)} µs` : us < 999500 ? `${(us / 1e3).toPrecision(3)} ms` : `${(us / 1e6).toPrecision(3)} s`);
const byteText = (bytes) => {
  for (const [power, unit] of [[30, "GiB"], [20, "MiB"], [10, "KiB"]]) if (bytes >= 2 ** power) return `${significant(bytes / 2 ** power)} ${unit}`;
  return `${bytes} B`;
};
// {"grid":8,"pipes":{"a":1}} -> "grid 8, pipes a 1"
const words = (value) => (value && typeof value === "object" ? Object.entries(value).map(([name, v]) => `${name} ${words(v)}`).join(", ") : String(value));
const settingsText = (text) => { try { return words(JSON.parse(text)); } catch { return text; } };
const FORMATS = {
  text: (v) => v, int: (v) => String(Math.round(v)), fixed: (v) => v.toFixed(2), fixed1: (v) => v.toFixed(1), fixed3: (v) => v.toFixed(3), number: (v) => significant(v, 4),
  percent: (v) => `${(100 * v).toFixed(1)} %`, us: timeText, bytes: byteText, settings: settingsText, folder: (v) => v, rate: (v) => `${significant(v / 1e12)} TB/s`,
};
const show = (value, format) => (value === null || value === undefined || value === "" ? "–" : FORMATS[format](value));

// --- the state: filters in the page's address --------------------------------------------------------------------------

const METRICS = {
  share: { title: "share of a copy", of: (row) => row.share, format: "percent", scale: { zero: true }, axis: { format: "%" } },
  time: { title: "time, µs", of: (row) => row.time_us, format: "us", scale: { type: "log" }, axis: {} },
  gbps: { title: "GB/s", of: (row) => row.gbps, format: "number", scale: { zero: true }, axis: {} },
  speedup: { title: "times as fast as the reference", of: (row) => row.speedup, format: "fixed", scale: { type: "log", base: 2 }, axis: {} },
};
const state = { device: "", run: data.start, family: "", dtype: "", mode: "", layout: "", metric: "share", reference: "", n: 0, size: 0, off: new Set() };

function readAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const name of ["run", "n", "size"]) if (/^\d+$/.test(wanted.get(name) ?? "")) state[name] = Number(wanted.get(name));
  for (const name of ["device", "family", "dtype", "mode", "layout", "metric", "reference"]) if (wanted.has(name)) state[name] = wanted.get(name);
  for (const name of ASKED) if (wanted.has(`my_${name}`)) state[`my_${name}`] = wanted.get(`my_${name}`);
  if (wanted.has("off")) state.off = new Set(wanted.get("off").split(" ").filter(Boolean));
}

function writeAddress() {
  const kept = { ...state, off: [...state.off].join(" ") };
  history.replaceState(null, "", "#" + new URLSearchParams(Object.entries(kept).filter(([, value]) => value !== "")));
}

const familyOf = (row) => (row.encoding ? `${row.family}: ${row.encoding}` : row.family);
const distinct = (rows, of) => [...new Set(rows.map(of))];
const inOrder = (values, order) => [...order.filter((v) => values.includes(v)), ...values.filter((v) => !order.includes(v)).sort()];
const nearest = (values, wanted) => values.reduce((best, v) => (Math.abs(v - wanted) < Math.abs(best - wanted) ? v : best), values[0]);

// The size at which most variants were measured, of several the largest.
function widest(rows, sizes) {
  const count = (size) => distinct(rows.filter((r) => r.size === size && r.timed), (r) => r.variant).length;
  return sizes.reduce((best, size) => (count(size) >= count(best) ? size : best), sizes[0] ?? 0);
}

// What each filter offers, given those before it; a value that is not offered gives way to the first.
function offers() {
  const offered = runs.map((run, i) => [i, run.name]).filter(([i]) => !state.device || runs[i].device === state.device);
  if (offered.length && !offered.some(([i]) => i === state.run)) state.run = offered[0][0];
  if (state.run >= runs.length) state.run = 0;
  let rows = rowsOf(state.run).filter((row) => row.status !== "published");
  const found = { run: offered };
  const steps = [["family", familyOf, Object.keys(data.families)], ["dtype", (r) => r.dtype, data.dtypes], ["mode", (r) => r.mode, ["replay", ...data.modes]], ["layout", (r) => r.layout, ["in place", "out of place"]]];
  for (const [name, of, order] of steps) {
    const values = inOrder(distinct(rows, of), [...new Set(order)]);
    found[name] = values.map((v) => [v, name === "family" ? data.families[v] ?? v.replace("encoded: ", "quantized output, ") : v]);
    if (!values.includes(state[name])) state[name] = values[0] ?? "";
    rows = rows.filter((row) => of(row) === state[name]);
  }
  found.metric = Object.entries(METRICS).map(([name, metric]) => [name, metric.title]);
  if (!(state.metric in METRICS)) state.metric = "share";
  const here = view();
  found.reference = distinct(here.filter((r) => r.timed), (r) => r.variant).map((v) => [v, v]);
  if (!found.reference.some(([v]) => v === state.reference)) state.reference = ["warp_shuffle", found.reference[0]?.[0] ?? ""].find((v) => found.reference.some(([r]) => r === v)) ?? "";
  const own = here.filter((r) => r.status !== "published");
  const ns = distinct(own, (r) => r.n).sort((a, b) => a - b), sizes = distinct(own, (r) => r.size).sort((a, b) => a - b);
  found.n = ns.map((n) => [n, String(n)]);
  found.size = sizes.map((s) => [s, `2^${s}`]);
  if (!ns.includes(state.n)) state.n = nearest(ns, state.n || 4096) ?? 0;
  if (!sizes.includes(state.size)) state.size = state.size ? nearest(sizes, state.size) ?? 0 : widest(own, sizes);
  return found;
}

// All rows under the filters, variants that are switched off included.
function view() {
  const part = rowsOf(state.run).filter((row) => familyOf(row) === state.family && row.dtype === state.dtype && row.mode === state.mode && row.layout === state.layout);
  const base = new Map(part.filter((r) => r.variant === state.reference && r.timed).map((r) => [`${r.operator} ${r.rows}`, r.time_us]));
  for (const row of part) row.speedup = row.timed && base.has(`${row.operator} ${row.rows}`) ? base.get(`${row.operator} ${row.rows}`) / row.time_us : null;
  return part;
}
const shown = (rows) => rows.filter((row) => !state.off.has(row.variant));

// --- charts -----------------------------------------------------------------------------------------------------------

function theme(narrow) {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink").trim(), muted = style.getPropertyValue("--muted").trim(), line = style.getPropertyValue("--line").trim();
  const axis = { labelColor: muted, titleColor: ink, gridColor: line, domainColor: muted, tickColor: muted, labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal" };
  return { background: "transparent", font: "system-ui, sans-serif", axis, legend: { labelColor: ink, titleColor: ink, labelLimit: 220, ...(narrow ? { orient: "bottom", columns: 2 } : {}) }, header: { labelColor: ink }, view: { stroke: line }, rule: { color: muted }, mark: { invalid: "break-paths-show-path-domains" } };
}

const drawn = new Map(); // element -> its finalizer
async function draw(element, spec, description) {
  const turn = Symbol(description);
  element.turn = turn;
  const embedded = await vegaEmbed(element, { ...spec, description, config: theme(element.clientWidth < 640) }, { mode: "vega-lite", renderer: "svg", actions: { export: true, source: false, compiled: false, editor: false } });
  if (element.turn !== turn) return embedded.finalize();
  drawn.get(element)?.finalize();
  drawn.set(element, embedded);
  element.querySelector("summary")?.setAttribute("aria-label", `Save the chart: ${description}`);
}

// Panels beside each other as the page is wide.
function fitted(spec, width, panels) {
  const made = structuredClone(spec);
  const panel = made.spec ?? made;
  if (typeof panel.width !== "number") return made;
  const legend = width < 640 ? 0 : 230, room = width - legend;
  panel.width = Math.min(panel.width, Math.max(180, width - 110));
  if (made.facet) made.columns = Math.max(1, Math.min(made.columns, panels, Math.floor(room / (panel.width + 70))));
  panel.width = Math.min(1.8 * panel.width, Math.max(panel.width, Math.floor(room / (made.facet ? made.columns : 1)) - 70));
  return made;
}

function declaredChart(element) {
  const chart = data.charts[element.dataset.chart];
  const values = unpack(chart.data), facet = chart.spec.facet?.field;
  const spec = fitted(chart.spec, element.clientWidth, facet ? distinct(values, (row) => row[facet]).length : 1);
  draw(element, { ...spec, data: { values } }, chart.title).then(() => { element.style.minHeight = ""; });
}

function explorerSpec(rows, x, xTitle) {
  const metric = METRICS[state.metric];
  const names = Object.keys(data.styles).filter((name) => rows.some((row) => row.variant === name));
  const style = (key) => ({ field: "variant", type: "nominal", legend: null, scale: { domain: names, range: names.map((name) => data.styles[name][key]) } });
  const values = rows.map((row) => ({
    variant: row.variant, operator: row.operator, n: row.n, rows: row.rows, value: metric.of(row), size: 2 ** row.size, time: show(row.time_us, "us"),
    repetitions: row.time_min_us === null ? "–" : `${show(row.time_min_us, "us")} to ${show(row.time_max_us, "us")}`, "of a copy": show(row.share, "percent"), "GB/s": show(row.gbps, "number"),
    "error / one rounding": show(row.error, "fixed"), "relative error": show(row.rel_l2, "number"), settings: show(row.settings, "settings"), picks: row.picked || "–",
  })).filter((row) => row.value !== null && row.value !== undefined);
  // A line stops where a place was not measured: at powers of two, and where another variant was.
  const found = distinct(values, (row) => row[x]), gaps = [];
  const between = found.every((place) => Number.isInteger(Math.log2(place))) ? Array.from({ length: Math.log2(Math.max(...found) / Math.min(...found)) }, (_, i) => Math.min(...found) * 2 ** i) : [];
  const places = distinct([...found, ...(found.length ? between : [])], (place) => place);
  for (const variant of names) {
    const own = values.filter((row) => row.variant === variant).map((row) => row[x]);
    for (const place of places) if (place > Math.min(...own) && place < Math.max(...own) && !own.includes(place)) gaps.push({ variant, [x]: place, value: null });
  }
  const tooltip = ["variant", "operator", "rows", "time", "repetitions", "of a copy", "GB/s", "error / one rounding", "relative error", "picks", "settings"].map((field) => ({ field, type: "nominal" }));
  const position = { x: { field: x, type: "quantitative", title: xTitle, scale: { type: "log", base: 2 }, axis: { labelExpr: x === "n" ? "format(datum.value, 'd')" : "'2^' + round(log(datum.value) / LN2)", labelOverlap: true } }, y: { field: "value", type: "quantitative", title: metric.title, scale: metric.scale, axis: metric.axis } };
  return {
    data: { values: [...values, ...gaps] }, width: "container", height: 300,
    layer: [
      { mark: { type: "line", strokeWidth: 1.6 }, encoding: { ...position, color: style("color"), strokeDash: style("dash") } },
      { mark: { type: "point", filled: true, size: 55 }, encoding: { ...position, color: style("color"), shape: style("shape"), tooltip } },
    ],
  };
}

// --- tables -----------------------------------------------------------------------------------------------------------

const ROW_HEIGHT = 27;
const PRINTED = 200; // rows of a table on paper at most
let printing = false;
const tables = new Map(); // element -> what draws the rows of its table

// A table that can be sorted, searched and downloaded; only the rows in sight are in the document.
function virtualTable(element, title, columns, rows) {
  let order = rows, sorted = { column: -1, descending: false };
  const search = el("input", { type: "search", placeholder: "Search", "aria-label": `Search in ${title}` });
  const count = el("span", { className: "count", role: "status" });
  const download = el("button", { type: "button", textContent: "CSV" , "aria-label": `Download ${title} as CSV`});
  const heads = columns.map(([, header], i) => {
    const button = el("button", { type: "button", textContent: header || "\u00a0" , ...(header ? {} : { "aria-label": "sort" })});
    button.addEventListener("click", () => sortBy(i));
    return el("th", { scope: "col", "aria-sort": "none" }, button);
  });
  const body = el("tbody");
  const table = el("table", { "aria-rowcount": rows.length }, el("caption", { className: "hidden", textContent: title }), el("thead", {}, el("tr", {}, ...heads)), body);
  const scroll = el("div", { className: "rows", tabIndex: 0, role: "region", "aria-label": title }, table);
  element.replaceChildren(el("div", { className: "tools" }, search, count, download), scroll);

  const text = (row, [field, , format]) => show(row[field], format);
  function render() {
    const first = printing ? 0 : Math.max(0, Math.floor(scroll.scrollTop / ROW_HEIGHT) - 8);
    const last = Math.min(order.length, printing ? PRINTED : first + Math.ceil(scroll.clientHeight / ROW_HEIGHT) + 24);
    const spacer = (count) => el("tr", { "aria-hidden": "true", style: `height:${count * ROW_HEIGHT}px` });
    const cells = (row) => columns.map((column) => cell(row, column));
    const below = printing && last < order.length ? el("tr", {}, el("td", { colSpan: columns.length, textContent: `${last} of ${order.length} rows are printed; the CSV of this table has all.` })) : spacer(order.length - last);
    body.replaceChildren(spacer(first), ...order.slice(first, last).map((row) => el("tr", {}, ...cells(row))), below);
  }
  function update() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    order = words.length ? rows.filter((row) => { const line = columns.map((c) => text(row, c)).join(" ").toLowerCase(); return words.every((word) => line.includes(word)); }) : [...rows];
    if (sorted.column >= 0) {
      const [field] = columns[sorted.column], sign = sorted.descending ? -1 : 1;
      const empty = (v) => v === null || v === undefined || v === "";
      order.sort((a, b) => (empty(a[field]) || empty(b[field]) ? empty(a[field]) - empty(b[field]) : sign * (typeof a[field] === "number" ? a[field] - b[field] : String(a[field]).localeCompare(String(b[field]), "en", { numeric: true }))));
    }
    count.textContent = order.length === rows.length ? `${rows.length} rows` : `${order.length} of ${rows.length} rows`;
    scroll.scrollTop = 0;
    render();
  }
  function sortBy(column) {
    sorted = { column, descending: sorted.column === column && !sorted.descending };
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== column ? "none" : sorted.descending ? "descending" : "ascending"));
    update();
  }
  tables.set(element, render);
  search.addEventListener("input", update);
  scroll.addEventListener("scroll", render, { passive: true });
  download.addEventListener("click", () => {
    // A spreadsheet would take a text that begins like this for a formula.
    const safe = (v) => (/^[=+@\t\r-]/.test(v) && Number.isNaN(Number(v)) ? `'${v}` : v);
    const quote = (v) => (/[",\n]/.test(safe(v)) ? `"${safe(v).replaceAll('"', '""')}"` : safe(v));
    const lines = [columns.map(([field]) => field), ...order.map((row) => columns.map(([field]) => quote(String(row[field] ?? ""))))].map((line) => line.join(","));
    const link = el("a", { href: URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" })), download: `${title.replace(/\W+/g, "_")}.csv` });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  update();
}

// A folder leads to its provenance, where its commands are.
function cell(row, [field, , format]) {
  const text = show(row[field], format);
  if (format === "folder" && row[field]) return el("td", {}, el("a", { href: `#folder-${row[field]}`, textContent: text }));
  const plain = ["text", "settings", "folder"].includes(format);
  return el("td", { className: plain ? "" : "number", textContent: text, title: plain ? text : "" });
}

function plainTable(caption, columns, rows) {
  const head = el("tr", {}, ...columns.map(([, header]) => el("th", { scope: "col", textContent: header })));
  const body = rows.map((row) => el("tr", {}, ...columns.map((column) => cell(row, column))));
  return el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption }, el("table", {}, el("caption", { textContent: caption }), el("thead", {}, head), el("tbody", {}, ...body)));
}

// --- the explorer -----------------------------------------------------------------------------------------------------

const LABELS = { run: "run", family: "problems", dtype: "dtype", mode: "mode", layout: "placement", metric: "show", reference: "reference", n: "n of the right chart", size: "elements of the left chart" };

function controls(found) {
  const box = byId("controls"), focused = document.activeElement?.name;
  box.replaceChildren();
  for (const [name, values] of Object.entries(found)) {
    if ((name === "run" || name === "family") && values.length < 2) continue;
    if (name === "reference" && state.metric !== "speedup") continue;
    const select = el("select", { name }, ...values.map(([value, text]) => el("option", { value: String(value), textContent: text, selected: String(value) === String(state[name]) })));
    select.addEventListener("change", () => { state[name] = typeof state[name] === "number" ? Number(select.value) : select.value; refresh(); });
    box.append(el("label", {}, LABELS[name] + " ", select));
    if (name === focused) select.focus();
  }
}

function variantSwitches(rows) {
  const box = byId("variants"), focused = document.activeElement?.dataset?.variant;
  const names = Object.keys(data.styles).filter((name) => rows.some((row) => row.variant === name));
  const make = (name) => {
    const on = !state.off.has(name), style = data.styles[name];
    const button = el("button", { type: "button", className: "chip", "aria-pressed": String(on) }, el("span", { textContent: style.letter, style: `color:${style.color}`, "aria-hidden": "true" }), ` ${name}`);
    button.dataset.variant = name;
    button.addEventListener("click", (event) => {
      if (event.shiftKey || event.altKey) state.off = new Set(names.filter((other) => other !== name));
      else on ? state.off.add(name) : state.off.delete(name);
      refresh();
    });
    return button;
  };
  const all = el("button", { type: "button", className: "chip", textContent: state.off.size ? "switch all on" : "switch all off", title: "Shift and click on a variant shows it alone" });
  all.addEventListener("click", () => { state.off = new Set(state.off.size ? [] : names); refresh(); });
  box.replaceChildren(...names.map(make), all);
  if (focused) [...box.children].find((child) => child.dataset.variant === focused)?.focus();
}

// Cividis, in eight stops.
const STOPS = ["#00224e", "#1d3b6f", "#43536c", "#666970", "#868279", "#a89d74", "#cdbb64", "#fee838"];
function colour(t) {
  const place = Math.max(0, Math.min(1, t)) * (STOPS.length - 1), index = Math.min(Math.floor(place), STOPS.length - 2);
  const part = (stop, i) => parseInt(stop.slice(1 + 2 * i, 3 + 2 * i), 16);
  const mixed = [0, 1, 2].map((i) => Math.round(part(STOPS[index], i) + (place - index) * (part(STOPS[index + 1], i) - part(STOPS[index], i))));
  return { background: `rgb(${mixed})`, ink: place >= 3.4 ? "#000" : "#fff" };
}

function shade(row) {
  if (state.metric === "speedup") return (Math.log2(row.speedup) + 2) / 4;
  return Math.min(1, row.share ?? 0);
}

function better(a, b) { return METRICS[state.metric].of(a) > METRICS[state.metric].of(b) === (state.metric !== "time") ? a : b; }

function drawMap(rows) {
  const metric = METRICS[state.metric], cells = new Map();
  const own = rows.some((row) => row.status !== "published") ? rows.filter((row) => row.status !== "published") : rows;
  for (const row of own) {
    const key = `${row.n} ${row.size}`, before = cells.get(key);
    const value = metric.of(row);
    if (value === null || value === undefined) { if (!before) cells.set(key, row); } else cells.set(key, before && metric.of(before) !== null ? better(before, row) : row);
  }
  const ns = distinct(own, (r) => r.n).sort((a, b) => a - b), sizes = distinct(own, (r) => r.size).sort((a, b) => a - b);
  const cell = (n, size) => {
    const row = cells.get(`${n} ${size}`);
    if (!row) return el("td");
    const value = metric.of(row), known = value !== null && value !== undefined;
    const { background, ink } = known ? colour(shade(row)) : { background: "transparent", ink: "inherit" };
    const label = known ? `n ${n}, 2^${size} elements: ${row.variant}, ${show(value, metric.format)}, ${show(row.time_us, "us")}, error ${show(row.error, "fixed")}` : `n ${n}, 2^${size} elements: ${row.status}${row.message ? ": " + row.message : ""}`;
    const button = el("button", { type: "button", style: `background:${background};color:${ink}`, "aria-label": label, textContent: known ? (state.metric === "share" ? String(Math.round(100 * value)) : show(value, metric.format === "us" ? "us" : "number")) : row.status === "ok" ? "·" : "✗" });
    if (n === state.n && size === state.size) button.setAttribute("aria-current", "true");
    for (const event of ["mouseenter", "focus"]) button.addEventListener(event, () => tip(button, label));
    for (const event of ["mouseleave", "blur"]) button.addEventListener(event, () => tip(null));
    button.addEventListener("click", () => { state.n = n; state.size = size; refresh(`[data-cell="${n} ${size}"]`); });
    button.dataset.cell = `${n} ${size}`;
    return el("td", {}, button);
  };
  const head = el("tr", {}, el("th", { scope: "col", textContent: "n \\ elements" }), ...sizes.map((size) => el("th", { scope: "col", textContent: `2^${size}` })));
  const body = ns.map((n) => el("tr", {}, el("th", { scope: "row", textContent: String(n) }), ...sizes.map((size) => cell(n, size))));
  byId("map").replaceChildren(el("table", { className: "map" }, el("caption", { textContent: `${METRICS[state.metric].title}${state.metric === "share" ? ", per cent" : ""}: best of the variants shown` }), el("thead", {}, head), el("tbody", {}, ...body)));
}

function tip(target, text) {
  const box = byId("tip");
  box.hidden = !target;
  if (!target) return;
  box.textContent = text;
  const place = target.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(place.left, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${place.bottom + 6 + box.offsetHeight > innerHeight ? place.top - box.offsetHeight - 6 : place.bottom + 6}px`;
}

const DETAIL = [["variant", "variant", "text"], ["operator", "operator", "text"], ["rows", "rows", "int"], ["time_us", "time", "us"], ["time_min_us", "fastest", "us"], ["time_max_us", "slowest", "us"], ["share", "of a copy", "percent"], ["gbps", "GB/s", "number"], ["error", "error / one rounding", "fixed"], ["rel_l2", "relative error", "number"], ["picked", "picks", "text"], ["settings", "settings", "settings"], ["message", "message", "text"], ["folder", "folder", "folder"]];

let listed = null; // rows of the explorer's table

function refresh(focus) {
  const found = offers(), all = view(), rows = shown(all);
  writeAddress();
  controls(found);
  variantSwitches(all);
  const exact = rows.filter((row) => row.size === state.size), fixed = rows.filter((row) => row.n === state.n);
  byId("by-n-title").textContent = `By row length, 2^${state.size} elements, ${state.dtype}, ${state.mode}, ${state.layout}`;
  byId("by-size-title").textContent = `By size, n = ${state.n}, ${state.dtype}, ${state.mode}, ${state.layout}`;
  draw(byId("by-n"), explorerSpec(exact, "n", "row length n"), byId("by-n-title").textContent);
  draw(byId("by-size"), explorerSpec(fixed, "size", "elements"), byId("by-size-title").textContent);
  drawMap(rows);
  const here = rows.filter((row) => row.n === state.n && row.size === state.size).sort((a, b) => (a.time_us ?? Infinity) - (b.time_us ?? Infinity));
  byId("detail").replaceChildren(here.length ? plainTable(`n = ${state.n}, 2^${state.size} elements, ${state.dtype}, ${state.mode}, ${state.layout}; the copy takes ${show(here[0].limit_us, "us")} (${here[0].limit_kernel})`, DETAIL, here) : el("p", { textContent: "Nothing was measured there with the variants shown." }));
  // The page may be drawn anew, as for another theme; a reader's order and search stay while the rows do.
  if (listed && rows.length === listed.length && rows.every((row, i) => row === listed[i])) tables.get(byId("view-table"))();
  else virtualTable(byId("view-table"), `Measurements ${state.dtype} ${state.mode} ${state.layout}`, [...DETAIL.slice(0, 2), ["n", "n", "int"], ...DETAIL.slice(2), ["status", "status", "text"]], rows);
  listed = rows;
  if (focus) document.querySelector(focus)?.focus({ preventScroll: true });
}

// --- my problem -------------------------------------------------------------------------------------------------------

// What a run measured of a problem, n but for `anyLength`. `asked`: dtype, n, rows, encoding, and layout and operator, "" for any.
const measuredOf = (index, asked, anyLength) => rowsOf(index).filter((row) => row.candidate && row.dtype === asked.dtype && (anyLength || row.n === asked.n) && row.encoding === asked.encoding && (!asked.operator || row.operator === asked.operator) && (!asked.layout || row.layout === asked.layout));

// As tables.plainest: Sylvester's matrix where it is one of them, else the first without signs and dense factors, else the first.
const plainest = (operators, n) => operators.find((name) => name === String(n)) ?? operators.find((name) => !/signs|d\d/.test(name)) ?? operators[0];

// As tables.which: the first run that measured it, or another of the same device with a nearer row count, or as near a one in a mode that
// judges the size better; the mode that judges the size best. `device`: its runs alone, "" for any.
function which(asked, device) {
  const far = (count) => Math.abs(Math.log2(count / asked.rows));
  let parts = [], found = null;
  for (let index = 0; index < runs.length; ++index) {
    if ((device && runs[index].device !== device) || (parts.length && runs[index].device !== runs[parts[0][0]].device)) continue;
    const part = measuredOf(index, asked);
    if (part.length) parts.push([index, part.map((row) => ({ ...row, variant: row.candidate }))]);
  }
  const apart = parts.map(([index, part]) => [index, part.filter((row) => row.mode !== "replay_pdl")]).filter(([, part]) => part.length);
  for (let [index, part] of apart.length ? apart : parts) {
    const operator = plainest(distinct(part, (row) => row.operator), asked.n);
    part = part.filter((row) => row.operator === operator);
    const layout = part.some((row) => row.layout === "in place") ? "in place" : part[0].layout;
    part = part.filter((row) => row.layout === layout);
    if (part.some((row) => row.mode !== "host")) part = part.filter((row) => row.mode !== "host");
    const count = distinct(part, (row) => row.rows).sort((a, b) => far(a) - far(b) || a - b)[0];
    if (found && far(count) > far(found.count)) continue;
    part = part.filter((row) => row.rows === count);
    const bytes = count * asked.n * data.bytes[asked.dtype], l2 = runs[index].l2_bytes;
    const regime = bytes <= l2 / 64 ? "small" : bytes <= data.in_l2 * l2 ? "L2" : "DRAM";
    const mode = [...data.preferred[regime], "cold", "replay_pdl", "host"].find((m) => part.some((row) => row.mode === m));
    const judges = data.preferred[regime].includes(mode);
    if (found && far(count) === far(found.count) && (found.judges || !judges)) continue;
    part = part.filter((row) => row.mode === mode).sort((a, b) => a.time_us - b.time_us);
    const tied = part.filter((row) => row.time_min_us <= part[0].time_max_us || row.time_us <= (1 + runs[index].noise) * part[0].time_us);
    const exact = (row) => Math.round(100 * (row.encoding ? Math.log(Math.max(row.rel_l2, 1e-9)) : row.error));
    const winner = [...tied].sort((a, b) => exact(a) - exact(b) || (a.variant !== data.own) - (b.variant !== data.own) || a.time_us - b.time_us)[0];
    found = { run: runs[index].name, device: runs[index].device, mode, judges, layout, count, winner, tied, rows: [winner, ...part.filter((row) => row !== winner)] };
  }
  return found;
}

const ASKED = ["dtype", "n", "rows", "encoding", "layout", "operator"];

// What one device answers, in words and as a table.
function answered(found, asked) {
  const { winner } = found, also = found.tied.filter((row) => row !== winner).map((row) => row.variant), apart = Math.max(found.count / asked.rows, asked.rows / found.count);
  const error = winner.encoding ? `relative error ${show(winner.rel_l2, "number")}` : `${show(winner.error, "fixed")} × the error of one rounding`;
  return [
    el("p", {}, el("strong", { textContent: winner.variant }), `${winner.picked ? `, which launches ${winner.picked}` : ""}: ${show(winner.time_us, "us")}, ${show(winner.share, "percent")} of a copy, ${error}${also.length ? `; as fast: ${also.join(", ")}` : ""}`),
    ...(apart > 4 ? [el("p", { className: "warning", textContent: `Nothing near ${asked.rows} rows was measured: ${found.count} rows are ${show(apart, "number")} times as ${found.count > asked.rows ? "many" : "few"}.` })] : []),
    plainTable(`${found.count} rows${found.count === asked.rows ? "" : ` (nearest measured to ${asked.rows})`}, ${found.mode}, ${found.layout}, ${found.run}`, [DETAIL[0], DETAIL[1], DETAIL[3], DETAIL[6], winner.encoding ? DETAIL[9] : ["error", "error", "fixed"], ["folder", "folder", "folder"]], found.rows),
  ];
}

function startWhich() {
  const form = byId("which");
  if (!form || !runs.length) return;
  const every = runs.flatMap((_, i) => rowsOf(i)).filter((row) => row.candidate);
  const options = (name, values, text = (v) => v) => form.elements[name].append(...values.map((value) => el("option", { value, textContent: text(value) })));
  const dtypes = inOrder(distinct(every, (row) => row.dtype), data.dtypes);
  options("dtype", dtypes);
  options("encoding", distinct(every, (row) => row.encoding).sort(), (v) => v || "none");
  options("layout", ["", ...distinct(every, (row) => row.layout)], (v) => v || "any");
  const known = distinct(every.filter((row) => row.dtype === dtypes[0] && !row.encoding), (row) => row.n);
  if (known.length) form.elements.n.value = known.reduce((best, n) => (Math.abs(Math.log2(n / 8192)) < Math.abs(Math.log2(best / 8192)) ? n : best));
  for (const name of ASKED) {
    const wanted = state[`my_${name}`];
    if (wanted !== undefined && (form.elements[name].tagName !== "SELECT" || [...form.elements[name].options].some((o) => o.value === wanted))) form.elements[name].value = wanted;
  }
  const answer = (event) => {
    event?.preventDefault();
    const box = byId("which-answer"), asked = Object.fromEntries(ASKED.map((name) => [name, form.elements[name].value.trim()]));
    if (event) { for (const name of ASKED) state[`my_${name}`] = asked[name]; writeAddress(); }
    for (const name of ["n", "rows"]) asked[name] = /^\d{1,15}$/.test(asked[name]) ? Number(asked[name]) : 0;
    if (asked.n < 1 || asked.rows < 1) return box.replaceChildren(el("p", { textContent: "n and rows are whole numbers from 1 on." }));
    // One answer for every device of the answers above, or of the one that is chosen; else whichever measured it.
    const each = (state.device ? [state.device] : data.answers).map((device) => which(asked, device)).filter(Boolean);
    const answers = each.length || state.device ? each : [which(asked, "")].filter(Boolean);
    if (!answers.length) {
      const same = runs.flatMap((run, i) => (state.device && run.device !== state.device ? [] : measuredOf(i, asked, true)));
      const near = distinct(same, (row) => row.n).sort((a, b) => Math.abs(Math.log2(a / asked.n)) - Math.abs(Math.log2(b / asked.n))).slice(0, 2).sort((a, b) => a - b);
      const what = [asked.dtype, asked.encoding, asked.layout, asked.operator].filter(Boolean).join(", ") + (state.device ? ` on ${state.device}` : "");
      const lengths = near.length > 1 ? `the nearest row lengths are ${near.join(" and ")}` : `the only row length is ${near[0]}`;
      return box.replaceChildren(el("p", { textContent: near.length ? `n = ${asked.n} was not measured in ${what}; ${lengths}.` : `Nothing was measured in ${what}.` }));
    }
    box.replaceChildren(...answers.flatMap((found) => answered(found, asked)));
  };
  form.addEventListener("submit", answer);
  answer();
  return answer;
}

// --- the device ------------------------------------------------------------------------------------------------------

// Shows what is of the chosen device, and what is of none; a section without anything to show goes, and its link.
function showDevice() {
  const buttons = [...document.querySelectorAll("#device button")];
  if (!buttons.some((button) => button.value === state.device)) state.device = "";
  for (const button of buttons) button.setAttribute("aria-pressed", String(button.value === state.device));
  for (const part of document.querySelectorAll("[data-device]")) part.hidden = state.device !== "" && part.dataset.device !== state.device;
  for (const section of document.querySelectorAll("main > section:not(#answer)")) {
    const parts = [...section.children].filter((part) => part.matches("figure, details"));
    section.hidden = section.querySelector(":scope > [data-device]") !== null && parts.every((part) => part.hidden);
    const link = document.querySelector(`nav a[href="#${section.id}"]`);
    if (link) link.parentElement.hidden = section.hidden;
  }
  const explore = byId("explore");
  if (explore) {
    explore.hidden = state.device !== "" && !runs.some((run) => run.device === state.device);
    document.querySelector('nav a[href="#explore"]').parentElement.hidden = explore.hidden;
  }
}

// --- start ------------------------------------------------------------------------------------------------------------

function start() {
  readAddress();
  showDevice();
  const answer = startWhich();
  // Parts are drawn when they come near, or all of them before the page is printed.
  const pending = new Set(document.querySelectorAll("[data-chart], [data-table]"));
  if (byId("explore") && runs.length) pending.add(byId("explore"));
  const drawPart = (target) => {
    if (!pending.delete(target)) return;
    lazily.unobserve(target);
    if (target.dataset.chart) declaredChart(target);
    else if (target.dataset.table) { const table = data.tables[target.dataset.table]; virtualTable(target, table.title, table.columns, unpack(table.data)); }
    else refresh();
  };
  const lazily = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => isIntersecting && drawPart(target)), { rootMargin: "400px" });
  pending.forEach((element) => lazily.observe(element));
  const print = (on) => {
    printing = on;
    document.querySelectorAll(on ? "section > details:not([open])" : "section > details[data-printed]").forEach((part) => { part.open = on; part.toggleAttribute("data-printed", on); });
    if (on) [...pending].filter((part) => !part.closest("[hidden]")).forEach(drawPart);
    for (const render of tables.values()) render();
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  addEventListener("hashchange", () => { if (location.hash.includes("=")) { readAddress(); showDevice(); answer?.(); refresh(); } });
  if (location.hash.includes("=") && !location.hash.includes("my_")) byId("explore")?.scrollIntoView();
  // A link to a folder opens its provenance.
  const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
  const unfold = () => { const target = location.hash.startsWith("#folder-") && byId(decoded(location.hash.slice(1))); if (target) { target.open = true; target.scrollIntoView(); } };
  addEventListener("hashchange", unfold);
  unfold();

  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const current = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => links.get(target.id)?.classList.toggle("current", isIntersecting)), { rootMargin: "-40% 0px -55% 0px" });
  document.querySelectorAll("section").forEach((section) => current.observe(section));
  document.querySelectorAll("nav a").forEach((link) => link.addEventListener("click", (event) => { event.preventDefault(); byId(link.hash.slice(1)).scrollIntoView(); }));

  const redraw = () => { for (const [element] of drawn) if (element.dataset.chart && !element.closest("[hidden]")) declaredChart(element); if (byId("explore") && !byId("explore").hidden && state.dtype) refresh(); };
  for (const button of document.querySelectorAll("#device button")) button.addEventListener("click", () => { state.device = button.value; showDevice(); answer?.(); writeAddress(); redraw(); });
  byId("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--scheme").trim() === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let waiting = 0, width = innerWidth;
  addEventListener("resize", () => { if (innerWidth === width) return; width = innerWidth; clearTimeout(waiting); waiting = setTimeout(redraw, 200); });
}
start();
