"use strict";
// Return the class with the fewest rows so far, with its recent share and recall.
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
  if (!r) return "Quality is shown as soon as rows of two classes were predicted and then learned.";
  if (r.recall === undefined) return `No row of class “${r.label}” among the last 4,000 rows.`;
  const found = Object.entries(now.recall);
  if (found.length > 2) {
    const [worst, recall] = found.reduce((a, b) => (b[1] < a[1] ? b : a));
    const mean = sum(found.map(([, v]) => v)) / found.length;
    return `Average recall of ${found.length} classes: ${Math.round(100 * mean)} %; lowest for “${worst}”: ${Math.round(100 * recall)} %.`;
  }
  const wrong = falseAlarmRate(now, r.label);
  return `Detects ${Math.round(100 * r.recall)}\u00a0% of the rows of class “${r.label}”` +
    (wrong === null ? "." : `; ${Math.round(100 * wrong)}\u00a0% of the alarms are false.`);
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

// Return a table with headings. A cell is a text or an element.
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
    ["threshold", `recall of “${scores.label}”`, "false positive rate", "G\u2011mean"],
    scores.cuts.map((cut) => [cut.cut.toFixed(2), share(cut.found), share(cut.false_alarms), measure(cut.g_mean)])));
}

function certificateTable(certificates) {
  return scrolled(table(["time", "selected by", "rows", "digests"], certificates.slice(0, 8).map((c) => {
    const digests = el("td", `${c.before.digest.slice(0, 6)} → ${c.after.digest.slice(0, 6)}`, "digest");
    digests.title = `${c.before.digest} → ${c.after.digest}`;
    return [moment(c.at), el("td", c.by), number(c.forgotten), digests];
  })));
}

// Show the contributions to the score of the predicted class. For the first of two classes their sign is flipped.
function alarmTable(alarm) {
  const several = typeof alarm.score === "object";
  const sign = !several && String(alarm.score_class) !== String(alarm.label) ? -1 : 1;
  const contributions = Object.entries(several ? alarm.contributions[alarm.label] : alarm.contributions);
  const largest = contributions.map(([column, v]) => [column, sign * v]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 5);
  const top = Math.max(...largest.map(([, v]) => Math.abs(v)), 1e-12);
  const rows = largest.map(([column, v]) => {
    const bar = svg("svg", { class: "contribution", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    const width = (50 * Math.abs(v)) / top;
    bar.append(svg("rect", { class: v > 0 ? "p" : "n", x: v > 0 ? 50 : 50 - width, y: 1, width, height: 8 }));
    const cell = el("td");
    cell.append(bar);
    return [`${column} = ${shown(alarm.values[column])}`, signed(v, top), cell];
  });
  const holder = el("div", null, "alarm");
  const score = several ? alarm.score[alarm.label] : sign * alarm.score;
  holder.append(el("div", `${moment(alarm.at)}: “${alarm.label}”, score ${signed(score, Math.abs(score))}`, "small"), scrolled(table(["column", "adds", ""], rows)));
  const change = alarm.changes?.[0];
  if (change) holder.append(el("div", `“${change.label}” with ${Object.entries(change.values).map(([column, v]) => `${column} = ${shown(v)}`).join(" and ")}`, "small quiet"));
  return holder;
}
const signed = (v, top) => `${v < 0 ? "−" : "+"}${top < 0.1 ? Math.abs(v).toPrecision(2) : Math.abs(v).toFixed(2)}`;
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

// Return a table cell with a bar and a number, for shares between 0 and 1.
function bar(value, text) {
  const cell = el("td", null, "say");
  if (value === null || value === undefined) return el("td", "–");
  const meter = el("meter");
  Object.assign(meter, { min: 0, max: 1, value: Math.min(1, value), title: text });
  cell.append(meter, el("span", text));
  return cell;
}

function columnTable(columns) {
  return scrolled(table(["column", "missing", "drift", "importance"], columns.map((c) => {
    const name = el("td", c.name, "name");
    name.title = c.kind;
    return [name, share(c.missing), bar(c.drift, c.drift === null ? "" : c.drift.toFixed(2)), bar(c.importance, (c.importance ?? 0).toFixed(2))];
  })));
}

function comparisonTable(compared) {
  const label = compared.model.rarest;
  const lines = [["G-mean", (m) => m.g_mean, measure], ["AUC", (m) => m.auc, measure]];
  if (label !== null) lines.push([`recall of “${label}”`, (m) => m.recall[label], share], ["false alarms", (m) => falseAlarmRate(m, label), share]);
  return scrolled(table(["", "model", "challenger"], lines.map(([name, of, show]) => {
    const [a, b] = [of(compared.model) ?? null, of(compared.challenger) ?? null];
    const better = a === null || b === null || a === b ? null : (name === "false alarms") === (b < a) ? 1 : 0;
    return [el("td", name, "name"), el("td", show(a), better === 0 ? "hit" : ""), el("td", show(b), better === 1 ? "hit" : "")];
  })));
}

function latencyTable(latency) {
  return table(["last 500 requests", "median", "99th percentile"], Object.entries(latency).map(
    ([verb, ms]) => [verb, `${ms.median.toFixed(1)} ms`, `${ms.p99.toFixed(1)} ms`]));
}
