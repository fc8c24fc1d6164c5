"use strict";
// Text from models is only ever set as text, never as markup.
const el = (tag, text, cls) => {
  const e = document.createElement(tag);
  if (text !== undefined && text !== null) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};
const svg = (tag, attributes) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
};
const main = document.getElementById("main");
const pulse = document.getElementById("pulse");
const number = (x) => x.toLocaleString("en", { maximumFractionDigits: 0 });
const share = (x) => (x === null || x === undefined ? "–" : (100 * x).toFixed(x > 0.1 ? 0 : 1) + " %");
const measure = (x) => (x === null || x === undefined ? "–" : x.toFixed(3));
const moment = (at) => {
  const then = new Date(1000 * at);
  const today = then.toDateString() === new Date().toDateString();
  return then.toLocaleString([], today ? { timeStyle: "medium", hourCycle: "h23" } : { dateStyle: "short", timeStyle: "short" });
};
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

async function fetchJson(path) {
  const key = sessionStorage.getItem("key");
  const response = await fetch(path, key ? { headers: { Authorization: "Bearer " + key } } : {});
  if (response.status === 401 || response.status === 403) { requestKey(); throw new Error("a key is required"); }
  if (!response.ok) throw new Error((await response.json()).detail);
  return response.json();
}

function requestKey() {
  const form = document.getElementById("key");
  form.hidden = false;
  main.hidden = true;
  form.onsubmit = (event) => {
    event.preventDefault();
    sessionStorage.setItem("key", new FormData(form).get("key"));
    location.reload();
  };
}

// The class with the fewest rows so far, with its recent share and recall.
function rarestClass(now) {
  const label = now.rarest;
  return label === null ? null : { label, share: now.share[label] ?? 0, recall: now.recall[label] };
}

function falseAlarmRate(now, label) {
  const at = now.confusion.labels.indexOf(label);
  if (at < 0) return null;
  const called = now.confusion.counts.reduce((sum, row) => sum + row[at], 0);
  return called ? 1 - now.confusion.counts[at][at] / called : null;
}

function headline(now) {
  const r = rarestClass(now);
  if (!r) return "Quality is shown as soon as labels of two classes have arrived.";
  if (r.recall === undefined) return `No row of class “${r.label}” among the last 4,000 rows.`;
  const found = Object.entries(now.recall);
  if (found.length > 2) {
    const [worst, recall] = found.reduce((a, b) => (b[1] < a[1] ? b : a));
    const mean = sum(found.map(([, v]) => v)) / found.length;
    return `Average recall of ${found.length} classes: ${Math.round(100 * mean)} %; lowest for “${worst}”: ${Math.round(100 * recall)} %.`;
  }
  const wrong = falseAlarmRate(now, r.label);
  return `Detects ${Math.round(100 * r.recall)} % of the rows of class “${r.label}”` +
    (wrong === null ? "." : `; ${Math.round(100 * wrong)} % of the alarms are false.`);
}

function spark(points) {
  const values = points.map((p) => p.g_mean).filter((v) => v !== null);
  const chart = svg("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": "G-mean over time" });
  if (values.length > 1) {
    const d = values.map((v, i) => `${i ? "L" : "M"}${(100 * i) / (values.length - 1)} ${28 - 26 * v}`).join("");
    chart.append(svg("path", { d }));
  }
  return chart;
}

async function showAll() {
  const { models } = await fetchJson("/v1/models");
  const grid = el("div", null, "grid");
  for (const model of models) {
    const { now, points } = await fetchJson(`/v1/models/${encodeURIComponent(model.name)}/measures`);
    const card = el("a", null, "card");
    card.href = `/models/${encodeURIComponent(model.name)}`;
    card.append(el("h2", model.name), el("div", headline(now), "small"), spark(points));
    card.append(el("div", `${number(model.rows)} rows · version ${number(model.version)} · ${number(model.waiting_for_labels)} waiting for labels`, "quiet small"));
    grid.append(card);
  }
  main.replaceChildren(el("h1", models.length ? `${models.length} ${models.length === 1 ? "model" : "models"}` : "No models yet"), grid);
  if (!models.length) main.append(el("p", "PUT /v1/models/NAME creates one; see the API description below.", "quiet"));
}

function tile(value, name) {
  const box = el("div", null, "card tile");
  box.append(el("b", value), el("span", name));
  return box;
}

function card(title, explanation, ...content) {
  const box = el("section", null, "card");
  box.append(el("h2", title));
  if (explanation) box.append(el("div", explanation, "quiet small"));
  box.append(...content);
  return box;
}

const clock = (at, span) => new Date(1000 * at).toLocaleString([], span > 172800
  ? { month: "short", day: "numeric" } : span > 600
    ? { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } : { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

// Dashed lines where the learner detected concept drift.
const marks = (drifts) => (u) => {
  u.ctx.save();
  u.ctx.strokeStyle = ink("--bad");
  u.ctx.setLineDash([4, 4]);
  for (const at of drifts) {
    const x = u.valToPos(at, "x", true);
    if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
    u.ctx.beginPath();
    u.ctx.moveTo(x, u.bbox.top);
    u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
    u.ctx.stroke();
  }
  u.ctx.restore();
};

// The chart object is kept while points are added, so that zoom and cursor stay.
function lineChart(holder, points, series, drifts = []) {
  const data = [points.map((p) => p.at), ...series.map((s) => points.map(s.value))];
  const appearance = [...series.map((s) => s.name), ink("--quiet")].join();
  holder.drifts = drifts;
  if (holder.appearance === appearance) {
    const { chart } = holder, known = chart.data[0];
    const zoomed = chart.scales.x.min > known[0] || chart.scales.x.max < known.at(-1);
    chart.setData(data, !zoomed);
    if (zoomed) chart.redraw();
  } else Object.assign(holder, { appearance, chart: makeChart(holder, data, series) });
  const { chart } = holder;
  if (holder.at !== null) chart.setLegend({ idx: holder.at });
  else if (chart.cursor.idx == null) setTimeout(() => latest(chart));
}

const latest = (chart) => chart.setLegend({ idx: chart.data[0].length - 1 }); // while the mouse is elsewhere

function makeChart(holder, data, series) {
  const axis = { stroke: ink("--quiet"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line"), width: 1 } };
  const options = {
    width: holder.clientWidth || 600, height: 240, cursor: { drag: { x: true, y: false } },
    scales: { y: { range: (_u, low, high) => [0, Math.max(high ?? 1, series[0].top ?? 1)] } },
    axes: [{ ...axis, space: 90, values: (u, ticks) => ticks.map((at) => clock(at, u.scales.x.max - u.scales.x.min)) }, { ...axis, size: 52 }],
    series: [{ label: "at", value: (_u, at) => (at === null ? "–" : moment(at)) },
      ...series.map((s) => ({ label: s.name, stroke: ink(s.colour), width: 2, points: { show: false }, value: (_u, v) => (v === null || v === undefined ? "–" : s.show(v)) }))],
    hooks: { draw: [(u) => marks(holder.drifts)(u)] },
  };
  holder.chart?.destroy();
  holder.replaceChildren();
  const chart = new uPlot(options, data, holder);
  chart.over.addEventListener("mouseleave", () => setTimeout(() => latest(chart)));
  holder.sized?.disconnect();
  holder.sized = new ResizeObserver(() => chart.setSize({ width: holder.clientWidth, height: 240 }));
  holder.sized.observe(holder);
  addKeyboardControl(holder, chart, series);
  return chart;
}

// Keyboard control: arrows select a point, + and - zoom, Escape resets the zoom.
function addKeyboardControl(holder, chart, series) {
  holder.tabIndex = 0;
  holder.setAttribute("role", "group");
  holder.setAttribute("aria-label", `Chart of ${series.map((s) => s.name).join(" and ")} over time. Arrow keys select a point, plus and minus zoom, Escape resets the zoom.`);
  const legend = holder.querySelector(".u-legend");
  holder.at = null; // index of the selected point
  const point = (idx) => {
    holder.at = idx;
    chart.setCursor({ left: chart.valToPos(chart.data[0][idx], "x"), top: 0 });
    chart.setLegend({ idx }); // several points can have the same position
  };
  const zoom = (factor) => {
    const at = chart.data[0], middle = at[holder.at ?? at.length - 1], half = (factor * (chart.scales.x.max - chart.scales.x.min)) / 2;
    chart.setScale("x", { min: Math.max(at[0], middle - half), max: Math.min(at.at(-1), middle + half) });
  };
  holder.onfocus = () => legend.setAttribute("aria-live", "polite"); // only while focused: a screen reader would read every update
  holder.onblur = () => {
    legend.removeAttribute("aria-live");
    holder.at = null;
    chart.setCursor({ left: -10, top: -10 });
    setTimeout(() => latest(chart));
  };
  holder.onkeydown = (event) => {
    const last = chart.data[0].length - 1, idx = holder.at ?? last;
    const act = {
      ArrowLeft: () => point(Math.max(idx - 1, 0)), ArrowRight: () => point(Math.min(idx + 1, last)),
      Home: () => point(0), End: () => point(last), "+": () => zoom(0.5), "-": () => zoom(2),
      Escape: () => chart.setScale("x", { min: chart.data[0][0], max: chart.data[0][last] }),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
}

function confusionTable(now) {
  const { labels, counts } = now.confusion;
  const order = labels.map((_, i) => i).sort((a, b) => sum(counts[b]) - sum(counts[a])).slice(0, 8);
  const table = el("table");
  const head = el("tr");
  head.append(el("th", "label ↓ prediction →", "corner"), ...order.map((i) => el("th", labels[i])), el("th", "recall"));
  table.append(el("thead"));
  table.tHead.append(head);
  const body = el("tbody");
  for (const i of order) {
    const row = el("tr");
    row.append(el("td", labels[i], "name"), ...order.map((j) => el("td", number(counts[i][j]), i === j ? "hit" : "")));
    row.append(el("td", share(sum(counts[i]) ? counts[i][i] / sum(counts[i]) : null)));
    body.append(row);
  }
  table.append(body);
  if (labels.length > order.length) {
    const more = el("tr");
    const rest = el("td", `and ${labels.length - order.length} more classes`, "quiet");
    rest.colSpan = order.length + 2;
    more.append(rest);
    body.append(more);
  }
  const holder = el("div", null, "scroll");
  holder.append(table);
  return holder;
}
const sum = (list) => list.reduce((a, b) => a + b, 0);

function histogram(scores) {
  const chart = svg("svg", { class: "bars", viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "img", "aria-label": "Scores of both classes" });
  const top = Math.max(...scores.positive, ...scores.negative, 1e-9);
  const n = scores.positive.length;
  for (const [cls, bars] of [["n", scores.negative], ["p", scores.positive]]) {
    bars.forEach((v, i) => chart.append(svg("rect", { class: cls, x: (300 * i) / n, width: 300 / n - 0.6, y: 98 - (94 * v) / top, height: (94 * v) / top })));
  }
  const zero = (300 * (0 - scores.low)) / (scores.high - scores.low);
  if (zero > 0 && zero < 300) chart.append(svg("line", { x1: zero, x2: zero, y1: 0, y2: 98 }));
  return chart;
}

// A table with headings; a cell is a text or an element.
function table(headings, rows) {
  const made = el("table");
  const line = (cells) => {
    const row = el("tr");
    row.append(...cells.map((cell) => (typeof cell === "string" ? el("td", cell) : cell)));
    return row;
  };
  const head = el("thead");
  head.append(line(headings.map((heading) => el("th", heading))));
  const body = el("tbody");
  body.append(...rows.map(line));
  made.append(head, body);
  return made;
}

function scrolled(wide) {
  const holder = el("div", null, "scroll");
  holder.append(wide);
  return holder;
}

function thresholdTable(scores) {
  return scrolled(table(
    ["threshold", `recall of “${scores.label}”`, "false positive rate", "G-mean"],
    scores.cuts.map((cut) => [cut.cut.toFixed(2), share(cut.found), share(cut.false_alarms), measure(cut.g_mean)])));
}

function certificateTable(certificates) {
  return scrolled(table(["time", "selected by", "rows", "digests"], certificates.slice(0, 8).map((c) => {
    const digests = el("td", `${c.before.digest.slice(0, 6)} → ${c.after.digest.slice(0, 6)}`, "digest");
    digests.title = `${c.before.digest} → ${c.after.digest}`;
    return [moment(c.at), el("td", c.by), number(c.forgotten), digests];
  })));
}

// The contributions to the score of the predicted class; the score of the first of two classes is the negative one.
function alarmTable(alarm) {
  const several = typeof alarm.score === "object";
  const sign = !several && alarm.score <= 0 ? -1 : 1;
  const contributions = Object.entries(several ? alarm.contributions[alarm.label] : alarm.contributions);
  const largest = contributions.map(([column, v]) => [column, sign * v]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 5);
  const top = Math.max(...largest.map(([, v]) => Math.abs(v)), 1e-12);
  const rows = largest.map(([column, v]) => {
    const bar = svg("svg", { class: "contribution", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    const width = (50 * Math.abs(v)) / top;
    bar.append(svg("rect", { class: v > 0 ? "p" : "n", x: v > 0 ? 50 : 50 - width, y: 1, width, height: 8 }));
    const cell = el("td");
    cell.append(bar);
    return [`${column} = ${shown(alarm.values[column])}`, signed(v), cell];
  });
  const holder = el("div", null, "alarm");
  const score = several ? alarm.score[alarm.label] : sign * alarm.score;
  holder.append(el("div", `${moment(alarm.at)}: “${alarm.label}”, score ${signed(score)}`, "small"), scrolled(table(["column", "adds", ""], rows)));
  const change = alarm.changes?.[0];
  if (change) holder.append(el("div", `“${change.label}” with ${Object.entries(change.values).map(([column, v]) => `${column} = ${shown(v)}`).join(" and ")}`, "small quiet"));
  return holder;
}
const signed = (v) => `${v < 0 ? "−" : "+"}${Math.abs(v).toFixed(2)}`;
const shown = (v) => (typeof v === "number" ? String(Number(v.toPrecision(4))) : String(v ?? "missing"));

function importanceTable(importance) {
  return scrolled(table(["column", "share"], importance.slice(0, 10).map(({ column, share: part }) => {
    const say = el("td", null, "say");
    const bar = el("meter");
    Object.assign(bar, { min: 0, max: 1, value: part, title: share(part) });
    say.append(bar, el("span", share(part)));
    return [column, say];
  })));
}

function changeTable(changes) {
  return scrolled(table(["row", "cause", "columns"], changes.slice(-8).reverse().map(
    (c) => [number(c.row), el("td", c.cause), el("td", [c, ...c.further].flatMap((part) => part.columns).join(", "))])));
}

function expertTable(experts) {
  const heaviest = [...experts].sort((a, b) => b.weight - a.weight);
  return scrolled(table(["expert", "rows", "recent score", "weight"], heaviest.map((e) => {
    const say = el("td", null, "say");
    const bar = el("meter");
    Object.assign(bar, { min: 0, max: 1, value: e.weight, title: share(e.weight) });
    say.append(bar, el("span", share(e.weight)));
    const name = el("td", e.name);
    name.title = e.words;
    return [name, number(e.rows), measure(e.record), say];
  })));
}

function latencyTable(latency) {
  return table(["last 500 requests", "median", "99th percentile"], Object.entries(latency).map(
    ([verb, ms]) => [verb, `${ms.median.toFixed(1)} ms`, `${ms.p99.toFixed(1)} ms`]));
}

class ModelPage {
  constructor(name) {
    this.name = name;
    this.path = `/v1/models/${encodeURIComponent(name)}`;
    this.points = [];
    this.rate = null; // rows learned per second
  }

  async open() {
    document.title = `${this.name} · steelyard`;
    document.getElementById("where").textContent = `/ ${this.name}`;
    const [model, explained, measures, { certificates }] = await Promise.all([
      fetchJson(this.path), fetchJson(`${this.path}/explanations`), fetchJson(`${this.path}/measures`), fetchJson(`${this.path}/certificates`)]);
    Object.assign(this, { model, explained, points: measures.points, now: measures.now, certificates });
    this.seen = performance.now();
    this.build();
    this.draw();
    this.follow();
  }

  build() {
    this.title = el("h1");
    this.sub = el("p", null, "quiet");
    this.tiles = el("div", null, "tiles");
    this.course = el("div", null, "chart");
    this.shares = el("div", null, "chart");
    this.drift = el("div", null, "quiet small");
    this.details = el("div", null, "details");
    const charts = el("div", null, "grid");
    charts.append(
      card("Quality over time", `G-mean: geometric mean of the recalls of all classes. ${this.now.auc === null ? "" : "AUC: probability that a row of the rare class scores higher than another row. "}Drag to zoom, double-click to reset; keyboard: arrows, + and −, Escape.`, this.course, this.drift),
      card("Share of the rare class", "Among the last 4,000 labelled rows.", this.shares));
    for (const c of charts.children) c.classList.add("wide");
    main.replaceChildren(this.title, this.sub, this.tiles, charts, this.details);
  }

  draw() {
    const { now, model } = this;
    this.title.textContent = headline(now);
    this.sub.textContent = "Prequential evaluation on the last 4,000 labelled rows: each row was predicted before it was learned.";
    const r = rarestClass(now);
    const nClasses = Object.keys(now.share).length;
    this.tiles.replaceChildren(
      tile(measure(now.g_mean), "G-mean"), nClasses > 2 ? tile(number(nClasses), "classes") : tile(measure(now.auc), "AUC"),
      tile(r ? share(r.share) : "–", r ? `share of “${r.label}”` : "share of the rare class"),
      tile(number(model.rows), "rows in the model"), tile(number(model.waiting_for_labels), "waiting for labels"),
      tile(this.rate === null ? "–" : number(this.rate), "rows per second"));
    if (this.points.length > 1) {
      const drifts = (model.drifts ?? []).map((row) => (this.points.find((p) => p.row >= row) ?? {}).at).filter((at) => at !== undefined);
      const curves = [{ name: "G-mean", value: (p) => p.g_mean, colour: "--a", show: (v) => v.toFixed(3), top: 1 }];
      if (this.points.some((p) => p.auc !== null)) curves.push({ name: "AUC", value: (p) => p.auc, colour: "--b", show: (v) => v.toFixed(3) });
      lineChart(this.course, this.points, curves, drifts);
      this.drift.textContent = drifts.length ? `Dashed lines: concept drift (${drifts.length} in this chart).` : "";
      const label = r ? r.label : Object.keys(now.share)[0];
      lineChart(this.shares, this.points, [
        { name: `share of “${label}”`, value: (p) => p.share[label] ?? null, colour: "--c", show: (v) => share(v), top: 0.02 }]);
    } else {
      for (const holder of [this.course, this.shares]) holder.replaceChildren(el("p", "The curve begins after 200 labels.", "quiet"));
    }
    const { alarms, importance } = this.explained;
    const cards = [];
    if (alarms.length) cards.push(card("Recent alarms", "The last predictions of a rare class, and what each column added to the score.", ...alarms.slice(0, 3).map(alarmTable)));
    if (importance.length) cards.push(card("Important columns", "Mean absolute contribution to the scores of recent rows, as a share of the total.", importanceTable(importance)));
    cards.push(card("Confusion matrix", "Number of rows by label and prediction.", confusionTable(now)));
    if (now.scores) {
      const legend = el("div", null, "small quiet");
      legend.append(el("span", null, "swatch p"), `“${now.scores.label}”  `, el("span", null, "swatch n"), "other classes; dashed line: the threshold");
      cards.push(card("Scores", "Distribution of the scores of both classes.", histogram(now.scores), legend));
      cards.push(card("Other thresholds", "Recall and false positives with other thresholds.", thresholdTable(now.scores)));
    }
    if (model.experts?.length) cards.push(card("Experts", "Weight of each expert in the prediction, and its recent score.", expertTable(model.experts)));
    if (model.changes) cards.push(card("What changed", "Drifts found by tests that are valid at any time: prior (class frequencies), features (a column moved in all classes), concept (a column moved differently within the classes).", model.changes.length ? changeTable(model.changes) : el("p", "No drift was found.", "quiet")));
    if (Object.keys(model.latency_ms ?? {}).length) cards.push(card("Latency", "Time from the first byte of a request to its response.", latencyTable(model.latency_ms)));
    cards.push(card("Forgotten rows", "Each line is a certificate, with the digests of the model before and after.", this.certificates.length ? certificateTable(this.certificates) : el("p", "Nothing has been forgotten yet.", "quiet")));
    const about = el("div", null, "small");
    about.append(el("div", `version ${number(model.version)}: ${model.spec.learner.class}, memory ${JSON.stringify(model.spec.memory)}, stored rows: ${model.spec.rows}`), el("div", "digest of the learned state", "quiet"), el("div", model.digest, "digest"));
    cards.push(card("Model", "Models with equal digests are equal.", about));
    this.details.replaceChildren(...cards);
  }

  async follow() {
    const key = sessionStorage.getItem("key");
    if (key) return this.poll(); // EventSource cannot send a key
    const source = new EventSource(`${this.path}/events`);
    let drawn = 0, due = false;
    source.onopen = () => this.showStatus(true);
    source.onerror = () => this.showStatus(false);
    source.addEventListener("model", (event) => {
      const change = JSON.parse(event.data);
      this.showStatus(true, change.version);
      if (due) return;
      due = true; // at most once a second; the last change is always drawn
      const wait = Math.max(0, 1000 - (performance.now() - drawn));
      setTimeout(() => {
        due = false;
        drawn = performance.now();
        this.refresh().catch(() => this.showStatus(false));
      }, wait);
    });
  }

  async poll() {
    for (;;) {
      await new Promise((done) => setTimeout(done, 2000));
      try { await this.refresh(); this.showStatus(true, this.model.version); } catch { this.showStatus(false); }
    }
  }

  async refresh() {
    const since = this.points.length ? this.points[this.points.length - 1].at : 0;
    const [model, explained, measures, { certificates }] = await Promise.all([
      fetchJson(this.path), fetchJson(`${this.path}/explanations`), fetchJson(`${this.path}/measures?since=${encodeURIComponent(new Date(1000 * since + 1).toISOString())}`), fetchJson(`${this.path}/certificates`)]);
    const seen = performance.now();
    if (this.seen) this.rate = Math.max(0, (1000 * (model.learned - this.model.learned)) / (seen - this.seen));
    this.seen = seen;
    this.points = [...this.points, ...measures.points.filter((p) => p.at > since)].slice(-2000);
    Object.assign(this, { model, explained, now: measures.now, certificates });
    this.draw();
  }

  showStatus(on, version) {
    pulse.className = on ? "on" : "off";
    pulse.textContent = on ? "live" : "the service does not respond";
    if (version) pulse.textContent += ` · version ${number(version)}`;
  }
}

const name = location.pathname.startsWith("/models/") ? decodeURIComponent(location.pathname.slice(8)) : null;
(name === null ? showAll() : new ModelPage(name).open()).catch((error) => {
  main.replaceChildren(el("h1", "Error"), el("p", error.message));
});
