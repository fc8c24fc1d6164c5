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
const moment = (at) => new Date(1000 * at).toLocaleString([], { dateStyle: "short", timeStyle: "short" });
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

async function ask(path) {
  const key = sessionStorage.getItem("key");
  const answer = await fetch(path, key ? { headers: { Authorization: "Bearer " + key } } : {});
  if (answer.status === 401 || answer.status === 403) { wantKey(); throw new Error("a key is needed"); }
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return answer.json();
}

function wantKey() {
  const form = document.getElementById("key");
  form.hidden = false;
  main.hidden = true;
  form.onsubmit = (event) => {
    event.preventDefault();
    sessionStorage.setItem("key", new FormData(form).get("key"));
    location.reload();
  };
}

// The rarest class of all that was measured, and how it fares lately.
function rare(now) {
  const label = now.rarest;
  return label === null ? null : { label, share: now.share[label] ?? 0, recall: now.recall[label] };
}

function alarms(now, label) {
  const at = now.confusion.labels.indexOf(label);
  if (at < 0) return null;
  const called = now.confusion.counts.reduce((sum, row) => sum + row[at], 0);
  return called ? 1 - now.confusion.counts[at][at] / called : null;
}

function headline(now) {
  const r = rare(now);
  if (!r) return "Waiting for labels of more than one class.";
  if (r.recall === undefined) return `No case of “${r.label}” among the last rows.`;
  if (Object.keys(now.share).length > 2) return `${Object.keys(now.share).length} classes, G-mean ${measure(now.g_mean)} over the last rows.`;
  const wrong = alarms(now, r.label);
  return `Finds ${Math.round(100 * r.recall)} of 100 cases of “${r.label}”` +
    (wrong === null ? "." : `; ${Math.round(100 * wrong)} of 100 alarms are false.`);
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
  const { models } = await ask("/v1/models");
  const grid = el("div", null, "grid");
  for (const model of models) {
    const { now, points } = await ask(`/v1/models/${encodeURIComponent(model.name)}/measures`);
    const card = el("a", null, "card");
    card.href = `/models/${encodeURIComponent(model.name)}`;
    card.append(el("h2", model.name), el("div", headline(now), "small"), spark(points));
    card.append(el("div", `${number(model.rows)} rows count · version ${number(model.version)} · ${number(model.waiting_for_labels)} wait for labels`, "quiet small"));
    grid.append(card);
  }
  main.replaceChildren(el("h1", models.length ? `${models.length === 1 ? "One model learns" : models.length + " models learn"} here` : "No models yet"), grid);
  if (!models.length) main.append(el("p", "PUT /v1/models/NAME makes one; see the interface below.", "quiet"));
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

function lineChart(holder, points, series) {
  const axis = { stroke: ink("--quiet"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line"), width: 1 } };
  const data = [points.map((p) => p.at), ...series.map((s) => points.map(s.value))];
  const options = {
    width: holder.clientWidth || 600, height: 240, cursor: { drag: { x: true, y: false } },
    scales: { y: { range: (_u, low, high) => [0, Math.max(high ?? 1, series[0].top ?? 1)] } },
    axes: [axis, { ...axis, size: 52 }],
    series: [{}, ...series.map((s) => ({ label: s.name, stroke: ink(s.colour), width: 2, value: (_u, v) => (v === null ? "–" : s.show(v)) }))],
  };
  holder.replaceChildren();
  const chart = new uPlot(options, data, holder);
  new ResizeObserver(() => chart.setSize({ width: holder.clientWidth, height: 240 })).observe(holder);
  return chart;
}

function confusionTable(now) {
  const { labels, counts } = now.confusion;
  const order = labels.map((_, i) => i).sort((a, b) => sum(counts[b]) - sum(counts[a])).slice(0, 8);
  const table = el("table");
  const head = el("tr");
  head.append(el("th", "truth ↓ answer →"), ...order.map((i) => el("th", labels[i])), el("th", "found"));
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
    more.append(el("td", `and ${labels.length - order.length} more classes`));
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

function cutTable(scores) {
  const table = el("table");
  const head = el("tr");
  head.append(el("th", "cut"), el("th", `found of “${scores.label}”`), el("th", "false alarms among the rest"), el("th", "G-mean"));
  table.append(el("thead"));
  table.tHead.append(head);
  const body = el("tbody");
  for (const cut of scores.cuts) {
    const row = el("tr");
    row.append(el("td", cut.cut.toFixed(2)), el("td", share(cut.found)), el("td", share(cut.false_alarms)), el("td", measure(cut.g_mean)));
    body.append(row);
  }
  table.append(body);
  const holder = el("div", null, "scroll");
  holder.append(table);
  return holder;
}

function certificateTable(certificates) {
  const table = el("table");
  const head = el("tr");
  head.append(el("th", "when"), el("th", "chosen by"), el("th", "rows"), el("th", "digest before → after"));
  table.append(el("thead"));
  table.tHead.append(head);
  const body = el("tbody");
  for (const c of certificates.slice(0, 8)) {
    const row = el("tr");
    row.append(el("td", moment(c.at)), el("td", c.by), el("td", number(c.forgotten)));
    row.append(el("td", `${c.before.digest.slice(0, 10)} → ${c.after.digest.slice(0, 10)}`, "digest"));
    body.append(row);
  }
  table.append(body);
  const holder = el("div", null, "scroll");
  holder.append(table);
  return holder;
}

class ModelPage {
  constructor(name) {
    this.name = name;
    this.path = `/v1/models/${encodeURIComponent(name)}`;
    this.points = [];
    this.rate = 0;
  }

  async open() {
    document.title = `${this.name} · steelyard`;
    document.getElementById("where").textContent = `/ ${this.name}`;
    const [model, measures, { certificates }] = await Promise.all([
      ask(this.path), ask(`${this.path}/measures`), ask(`${this.path}/certificates`)]);
    Object.assign(this, { model, points: measures.points, now: measures.now, certificates });
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
    this.details = el("div", null, "details");
    const charts = el("div", null, "grid");
    charts.append(
      card("How good it is", "G-mean: 1 finds every class fully, 0 misses one altogether. AUC: how often a rare case scores above another. Drag to zoom, double click to go back.", this.course),
      card("How rare the rare class is", "Its share among the last rows.", this.shares));
    for (const c of charts.children) c.classList.add("wide");
    main.replaceChildren(this.title, this.sub, this.tiles, charts, this.details);
  }

  draw() {
    const { now, model } = this;
    this.title.textContent = headline(now);
    this.sub.textContent = "Measured on the last 1,000 rows whose labels are known, each answered before its label came.";
    const r = rare(now);
    this.tiles.replaceChildren(
      tile(measure(now.g_mean), "G-mean"), tile(measure(now.auc), "AUC"),
      tile(r ? share(r.share) : "–", r ? `share of “${r.label}”` : "share of the rare class"),
      tile(number(model.rows), "rows that count"), tile(number(model.waiting_for_labels), "wait for labels"),
      tile(number(model.version), "version"));
    if (this.points.length > 1) {
      lineChart(this.course, this.points, [
        { name: "G-mean", value: (p) => p.g_mean, colour: "--a", show: (v) => v.toFixed(3), top: 1 },
        { name: "AUC", value: (p) => p.auc, colour: "--b", show: (v) => v.toFixed(3) }]);
      const label = r ? r.label : Object.keys(now.share)[0];
      lineChart(this.shares, this.points, [
        { name: `share of “${label}”`, value: (p) => p.share[label] ?? null, colour: "--c", show: (v) => share(v), top: 0.02 }]);
    } else {
      for (const holder of [this.course, this.shares]) holder.replaceChildren(el("p", "The curve begins when two hundred labels have come.", "quiet"));
    }
    const parts = [card("Right and wrong", "Rows by truth and answer.", confusionTable(now))];
    if (now.scores) {
      const legend = el("div", null, "small quiet");
      legend.append(el("span", null, "swatch p"), `“${now.scores.label}”  `, el("span", null, "swatch n"), "the rest; the dashed line is the cut");
      parts.push(card("Scores", "How far apart the classes lie.", histogram(now.scores), legend));
      parts.push(card("Other cuts", "What another cut would have found, and cost.", cutTable(now.scores)));
    }
    parts.push(card("Forgotten", "Each line is a certificate.", this.certificates.length ? certificateTable(this.certificates) : el("p", "Nothing has been forgotten yet.", "quiet")));
    const about = el("div", null, "small");
    about.append(el("div", `${model.spec.learner.class}, memory ${JSON.stringify(model.spec.memory)}, rows kept: ${model.spec.rows}`), el("div", "digest of everything learned", "quiet"), el("div", model.digest, "digest"));
    parts.push(card("The model", "Equal digests, equal models.", about));
    this.details.replaceChildren(...parts);
  }

  async follow() {
    const key = sessionStorage.getItem("key");
    if (key) return this.poll(); // EventSource cannot send a key
    const source = new EventSource(`${this.path}/events`);
    let drawn = 0, due = false;
    source.onopen = () => this.beat(true);
    source.onerror = () => this.beat(false);
    source.addEventListener("model", (event) => {
      const facts = JSON.parse(event.data);
      this.beat(true, facts.version);
      if (due) return;
      due = true; // once a second at most, and never without the last one
      const wait = Math.max(0, 1000 - (performance.now() - drawn));
      setTimeout(() => {
        due = false;
        drawn = performance.now();
        this.refresh().catch(() => this.beat(false));
      }, wait);
    });
  }

  async poll() {
    for (;;) {
      await new Promise((done) => setTimeout(done, 2000));
      try { await this.refresh(); this.beat(true, this.model.version); } catch { this.beat(false); }
    }
  }

  async refresh() {
    const since = this.points.length ? this.points[this.points.length - 1].at : 0;
    const [model, measures, { certificates }] = await Promise.all([
      ask(this.path), ask(`${this.path}/measures?since=${encodeURIComponent(new Date(1000 * since + 1).toISOString())}`), ask(`${this.path}/certificates`)]);
    this.points = [...this.points, ...measures.points.filter((p) => p.at > since)].slice(-2000);
    Object.assign(this, { model, now: measures.now, certificates });
    this.draw();
  }

  beat(on, version) {
    pulse.className = on ? "on" : "off";
    pulse.textContent = on ? "live" : "the service does not answer";
    if (version) pulse.textContent += ` · version ${number(version)}`;
  }
}

const name = location.pathname.startsWith("/models/") ? decodeURIComponent(location.pathname.slice(8)) : null;
(name === null ? showAll() : new ModelPage(name).open()).catch((error) => {
  main.replaceChildren(el("h1", "That did not work"), el("p", error.message));
});
