"use strict";
// The page of one model.
const RANGES = { "1 hour": 3600, "6 hours": 21600, "24 hours": 86400, "7 days": 604800, everything: 1e10 };
const SLOW_SECONDS = 20; // columns and versions are computed on request, so they are refreshed rarely

// Further cards: `load(page)` returns the data, or null for no card; `draw(data, page)` draws the card.
// A card with `isSlow` is loaded when the page opens and then every SLOW_SECONDS. Add new cards to this list.
const EXTRA_CARDS = [
  {
    load: (page) => (page.model.realised_rates?.length ? page.model.realised_rates : null),
    draw: (rates) => card("Target and observed rates", "Since the model was created, with 95 % confidence intervals that are valid at any time.", rateTable(rates)),
  },
  {
    load: (page) => (page.model.topics?.length ? page.model.topics : null),
    draw: (topics) => card("Topics", "Message brokers that feed the model. Lag: messages that were not read yet.", topicTable(topics)),
  },
  {
    load: (page) => optional(`${page.path}/explanations`),
    draw: ({ alarms }) => (alarms.length ? card("Recent alarms", "The last predictions of a rare class, and what each column added to the score.", ...alarms.slice(0, 3).map(alarmTable)) : null),
  },
  {
    isSlow: true,
    load: (page) => optional(`${page.path}/explanations`),
    draw: ({ importance }) => (importance.length ? card("Important columns", "Mean absolute contribution to the scores of recent rows, as a share of the total.", importanceTable(importance)) : null),
  },
  {
    load: (page) => (page.model.has_challenger ? optional(`${page.path}/challenger`) : null),
    draw: (compared, page) => card("Challenger", `Second model that has learned the same rows in shadow mode since ${moment(compared.since)}. Both are evaluated on the last ${number(Math.min(4000, compared.rows))} of these rows. POST ${page.path}/promote swaps them, and a second call swaps them back.`,
      comparisonTable(compared), el("div", `challenger: ${JSON.stringify(compared.spec.learner)}`, "quiet small wrap")),
  },
  {
    isSlow: true,
    load: (page) => optional(`${page.path}/columns`),
    draw: (found) => (found.columns.length ? card("Columns", `Last ${number(found.rows)} rows. Drift: distance between the distributions of the first and the last rows since the start, 0 to 1. Importance: change of the scores when the column is shuffled.`,
      columnTable(found.columns), el("div", found.more ? `and ${number(found.more)} more columns` : "", "quiet small")) : null),
  },
  {
    isSlow: true,
    load: (page) => optional(`${page.path}/versions`),
    draw: (found, page) => (found.versions.length ? card("Versions", "Versions with a snapshot. Compare: the share of recent rows for which a version predicts the same label as the current version.", versionTable(found.versions, page)) : null),
  },
];

function rateTable(rates) {
  const percent = (x) => (x === null ? "–" : (100 * x).toFixed(x < 0.1 ? 2 : 1));
  return scrolled(table(["percent", "target", "observed", "interval", "rows"], rates.map((r) => [
    r.name, percent(r.promised), percent(r.rate), r.interval.map(percent).join("\u2060\u2013\u2060"), number(r.rows)])));
}

function topicTable(topics) {
  return scrolled(table(["topic", "state", "lag", "rows/s", "rows", "dead letters"], topics.map((t) => [
    el("td", t.address, "name"), t.error ? `${t.state}: ${t.error}` : t.state, t.lag === null ? "–" : number(t.lag), number(t.rows_per_second), number(t.rows), number(t.dead_letters)])));
}

function versionTable(versions, page) {
  return scrolled(table(["version", "time", "size", "same labels"], versions.slice(0, 8).map((v) => {
    const cell = el("td");
    const known = page.agreements.get(v.version);
    const button = el("button", "compare", "plain");
    button.onclick = async () => {
      button.disabled = true;
      const answer = await optional(`${page.path}/versions?compare=${v.version}`);
      const said = answer ? (answer.compared.same === null ? "no recent rows" : share(answer.compared.same)) : "not available";
      page.agreements.set(v.version, said);
      cell.replaceChildren(said);
    };
    cell.append(known ?? button);
    return [number(v.version), moment(v.at), bytes(v.bytes), cell];
  })));
}

class ModelPage {
  constructor(name) {
    this.name = name;
    this.path = `/v1/models/${encodeURIComponent(name)}`;
    this.points = [];
    this.rate = null; // rows learned per second
    this.agreements = new Map(); // results of comparisons, keyed by version
    this.extra = EXTRA_CARDS.map(() => null); // data of the further cards
    this.loaded = -Infinity; // time at which the slow cards were loaded
  }

  get since() {
    return new Date(Math.max(0, Date.now() - 1000 * RANGES[this.range.value])).toISOString();
  }

  async loadExtra() {
    const isDue = performance.now() - this.loaded > 1000 * SLOW_SECONDS;
    if (isDue) this.loaded = performance.now();
    await Promise.all(EXTRA_CARDS.map(async (extra, k) => {
      if (isDue || !extra.isSlow) this.extra[k] = await extra.load(this);
    }));
  }

  async open() {
    document.title = `${this.name} · steelyard`;
    document.getElementById("where").textContent = `/ ${this.name}`;
    this.range = el("select");
    this.range.ariaLabel = "Time range of the curves";
    for (const range of Object.keys(RANGES)) this.range.append(el("option", range));
    this.range.value = "24 hours";
    this.range.onchange = () => this.reload().catch(() => this.showStatus(false));
    await this.load();
    this.build();
    this.draw();
    this.follow();
  }

  async load() {
    const since = encodeURIComponent(this.since);
    const [model, measures, { certificates }, activity] = await Promise.all([
      fetchData(this.path), fetchData(`${this.path}/measures?since=${since}`), fetchData(`${this.path}/certificates`), fetchData(`${this.path}/activity?since=${since}`)]);
    Object.assign(this, { model, points: measures.points, now: measures.now, certificates, activity });
    this.seen = performance.now();
    await this.loadExtra();
  }

  async reload() {
    await this.load();
    this.draw();
  }

  build() {
    this.title = el("h1");
    this.sub = el("p", null, "quiet");
    this.tiles = el("div", null, "tiles");
    this.course = el("div", null, "chart");
    this.shares = el("div", null, "chart");
    this.drift = el("div", null, "quiet small");
    this.details = el("div", null, "details");
    this.curves = Object.fromEntries(["volume", "latency", "errors", "delay"].map((name) => [name, el("div", null, "chart")]));
    const controls = el("div", null, "controls");
    const label = el("label", "Time range ", "quiet small");
    label.append(this.range);
    controls.append(label);
    const charts = el("div", null, "grid");
    charts.append(
      card("Quality over time", `G-mean: geometric mean of the recalls of all classes. ${this.now.auc === null ? "" : "AUC: probability that a row of the rare class scores higher than another row. "}Drag to zoom, double-click to reset; keyboard: arrows, + and −, Escape.`, this.course, this.drift),
      card("Share of the rare class", "Among the last 4,000 labelled rows.", this.shares));
    for (const c of charts.children) c.classList.add("wide");
    const traffic = el("div", null, "grid halves");
    traffic.append(
      card("Requests", "Requests per interval since this process started.", this.curves.volume),
      card("Latency", "99th percentile in milliseconds.", this.curves.latency),
      card("Errors", "Failed (5xx) and refused (4xx) requests per interval.", this.curves.errors),
      card("Delay of labels", "Median hours from prediction to label.", this.curves.delay));
    main.replaceChildren(this.title, this.sub, this.tiles, controls, charts, traffic, this.details);
  }

  drawActivity() {
    const { points } = this.activity;
    const draw = (name, series, isEmpty) => {
      const holder = this.curves[name];
      holder.classList.toggle("empty", points.length < 2 || isEmpty);
      if (points.length > 1 && !isEmpty) lineChart(holder, points, series);
      else {
        holder.chart?.destroy();
        Object.assign(holder, { chart: null, appearance: null });
        holder.replaceChildren(el("p", points.length > 1 ? "No data in this time range." : "The curve begins after two minutes.", "quiet"));
      }
    };
    const none = (...names) => points.every((p) => names.every((name) => !p[name]));
    const count = (v) => number(v);
    draw("volume", [{ name: "learn", value: (p) => p.learn, colour: "--a", show: count, top: 5 }, { name: "predict", value: (p) => p.predict, colour: "--b", show: count }], none("learn", "predict"));
    draw("latency", [{ name: "learn", value: (p) => p.learn_ms, colour: "--a", show: (v) => `${v} ms`, top: 2, dots: true }, { name: "predict", value: (p) => p.predict_ms, colour: "--b", show: (v) => `${v} ms`, dots: true }], none("learn_ms", "predict_ms"));
    draw("errors", [{ name: "failed", value: (p) => p.errors, colour: "--bad", show: count, top: 5 }, { name: "refused", value: (p) => p.refused, colour: "--c", show: count }], none("errors", "refused"));
    draw("delay", [{ name: "hours", value: (p) => (p.label_delay === null ? null : p.label_delay / 3600), colour: "--c", show: (v) => duration(3600 * v), top: 0.02, dots: true }], none("labels"));
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
      for (const holder of [this.course, this.shares]) holder.classList.remove("empty");
      const drifts = (model.drifts ?? []).map((row) => (this.points.find((p) => p.row >= row) ?? {}).at).filter((at) => at !== undefined);
      const curves = [{ name: "G-mean", value: (p) => p.g_mean, colour: "--a", show: (v) => v.toFixed(3), top: 1 }];
      if (this.points.some((p) => p.auc !== null)) curves.push({ name: "AUC", value: (p) => p.auc, colour: "--b", show: (v) => v.toFixed(3) });
      lineChart(this.course, this.points, curves, drifts);
      this.drift.textContent = drifts.length ? `Dashed lines: concept drift (${drifts.length} in this chart).` : "";
      const label = r ? r.label : Object.keys(now.share)[0];
      lineChart(this.shares, this.points, [
        { name: `share of “${label}”`, value: (p) => p.share[label] ?? null, colour: "--c", show: (v) => share(v), top: 0.02 }]);
    } else {
      for (const holder of [this.course, this.shares]) {
        holder.chart?.destroy();
        Object.assign(holder, { chart: null, appearance: null });
        holder.classList.add("empty");
        holder.replaceChildren(el("p", "No labels in this time range. The curve begins after 200 labels.", "quiet"));
      }
    }
    this.drawActivity();
    const cards = [card("Confusion matrix", "Number of rows by label and prediction.", confusionTable(now))];
    if (now.scores) {
      const legend = el("div", null, "small quiet");
      legend.append(el("span", null, "swatch p"), `“${now.scores.label}”  `, el("span", null, "swatch n"), "other classes; dashed line: the threshold");
      cards.push(card("Scores", "Distribution of the scores of both classes.", histogram(now.scores), legend));
      cards.push(card("Other thresholds", "Recall and false positives with other thresholds.", thresholdTable(now.scores)));
    }
    EXTRA_CARDS.forEach((extra, k) => {
      const drawn = this.extra[k] && extra.draw(this.extra[k], this);
      if (drawn) cards.push(drawn);
    });
    if (model.changes) cards.push(card("What changed", "Drifts found by tests that are valid at any time: prior (class frequencies), features (a column moved in all classes), concept (a column moved differently within the classes).", model.changes.length ? changeTable(model.changes) : el("p", "No drift was found.", "quiet")));
    if (model.experts?.length) cards.push(card("Experts", "Weight of each expert in the prediction, and its recent score.", expertTable(model.experts)));
    if (Object.keys(model.latency_ms ?? {}).length) cards.push(card("Latency of recent requests", "Time from the first byte of a request to its response.", latencyTable(model.latency_ms)));
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
      due = true; // the page is drawn at most once per second, and the last change is always drawn
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
    const since = this.points.length ? this.points[this.points.length - 1].at : Date.parse(this.since) / 1000;
    const [model, measures, { certificates }, activity] = await Promise.all([
      fetchData(this.path), fetchData(`${this.path}/measures?since=${encodeURIComponent(new Date(1000 * since + 1).toISOString())}`), fetchData(`${this.path}/certificates`),
      fetchData(`${this.path}/activity?since=${encodeURIComponent(this.since)}`)]);
    const seen = performance.now();
    if (this.seen) this.rate = Math.max(0, (1000 * (model.learned - this.model.learned)) / (seen - this.seen));
    this.seen = seen;
    this.points = [...this.points, ...measures.points.filter((p) => p.at > since)].slice(-2000);
    Object.assign(this, { model, now: measures.now, certificates, activity });
    await this.loadExtra();
    this.draw();
  }

  showStatus(on, version) {
    pulse.className = on ? "on" : "off";
    pulse.textContent = on ? "live" : "the service does not respond";
    if (version) pulse.textContent += ` · version ${number(version)}`;
  }
}
