"use strict";
// Overview of all models: status of the process, search, order, and one card per model.
const SHOWN_MODELS = 60; // maximum number of cards; the search finds the other models
const OVERVIEW_SECONDS = 5;
const worst = (m) => (m.quality.g_mean === null ? 2 : m.quality.g_mean) - 3 * Math.sign(m.errors_per_hour);
const ORDERS = {
  "worst first": (a, b) => worst(a) - worst(b) || a.name.localeCompare(b.name),
  name: (a, b) => a.name.localeCompare(b.name),
  "busiest first": (a, b) => b.requests_per_hour - a.requests_per_hour || a.name.localeCompare(b.name),
  "most labels missing": (a, b) => b.waiting_for_labels - a.waiting_for_labels || a.name.localeCompare(b.name),
};

// Facts about the process; a fact that needs attention is marked.
function statusLine(status) {
  const full = status.disk_free_bytes !== null && status.disk_free_bytes < Math.max(1e9, 0.2 * (status.store_bytes ?? 0));
  const facts = [
    [status.role === "learner" ? "learns" : `follows, ${duration(status.behind)} behind`, status.behind > 15],
    [status.writer_alive ? null : "the writer has ended: restart the service", true],
    [status.is_store_up ? `store ${bytes(status.store_bytes)}` : "the store cannot be read", !status.is_store_up],
    [status.disk_free_bytes === null ? null : `disk ${bytes(status.disk_free_bytes)} free`, full],
    [status.write_failures ? `${number(status.write_failures)} write failures` : null, true],
    [status.requests_waiting ? `${counted(status.requests_waiting, "request")} waiting` : null, status.requests_waiting > 800],
    [`version ${status.version}`, false],
  ];
  const line = el("p", null, "facts");
  for (const [text, isBad] of facts) if (text) line.append(el("span", text, isBad ? "fact bad" : "fact"));
  return line;
}

class Overview {
  constructor() {
    this.sparks = new Map(); // quality over time, keyed by model and version
    this.title = el("h1");
    this.facts = el("div");
    this.search = el("input");
    Object.assign(this.search, { type: "search", placeholder: "Search models", ariaLabel: "Search models" });
    this.order = el("select");
    this.order.ariaLabel = "Order of the models";
    for (const name of Object.keys(ORDERS)) this.order.append(el("option", name));
    this.controls = el("div", null, "controls");
    this.controls.append(this.search, this.order);
    this.grid = el("div", null, "grid");
    this.note = el("p", null, "quiet");
    this.search.oninput = this.order.onchange = () => this.draw();
  }

  async open() {
    await this.refresh();
    main.replaceChildren(this.title, this.facts, this.controls, this.grid, this.note);
    for (;;) {
      await new Promise((done) => setTimeout(done, 1000 * OVERVIEW_SECONDS));
      try {
        if (!document.hidden) await this.refresh();
        pulse.className = "on";
        pulse.textContent = "live";
      } catch {
        pulse.className = "off";
        pulse.textContent = "the service does not respond";
      }
    }
  }

  async refresh() {
    const [{ models }, status] = await Promise.all([fetchData("/v1/models"), fetchData("/v1/status")]);
    this.models = models;
    this.facts.replaceChildren(statusLine(status));
    await this.draw();
  }

  async draw() {
    const wanted = this.search.value.trim().toLowerCase();
    const found = this.models.filter((m) => m.name.toLowerCase().includes(wanted)).sort(ORDERS[this.order.value]);
    const shown = found.slice(0, SHOWN_MODELS);
    this.title.textContent = this.models.length ? `${number(this.models.length)} ${this.models.length === 1 ? "model" : "models"}` : "No models yet";
    this.controls.hidden = this.models.length < 2;
    this.note.textContent = !this.models.length ? "PUT /v1/models/NAME creates one; see the API description below."
      : !found.length ? "No model has this name." : found.length > shown.length ? `${number(found.length - shown.length)} more models: use the search.` : "";
    const cards = await Promise.all(shown.map((model) => this.card(model)));
    if (wanted !== this.search.value.trim().toLowerCase()) return; // a later search will draw the cards
    const focused = document.activeElement?.dataset?.model;
    this.grid.replaceChildren(...cards);
    if (focused) cards.find((c) => c.dataset.model === focused)?.focus();
  }

  async card(model) {
    const known = this.sparks.get(model.name);
    const measures = known?.version === model.version ? known.measures : await optional(`/v1/models/${encodeURIComponent(model.name)}/measures`);
    this.sparks.set(model.name, { version: model.version, measures });
    const box = el("a", null, "card");
    box.href = `/models/${encodeURIComponent(model.name)}`;
    box.dataset.model = model.name;
    const head = el("div", null, "headline");
    head.append(breakable("h2", model.name), el("b", measure(model.quality.g_mean)));
    box.append(head);
    if (measures) box.append(el("div", headline(measures.now), "small"), spark(measures.points));
    const facts = [counted(model.rows, "row"), `${counted(model.requests_per_hour, "request")}/h`];
    if (model.waiting_for_labels) facts.push(`${number(model.waiting_for_labels)} waiting for labels`);
    if (model.has_challenger) facts.push("challenger");
    box.append(el("div", facts.join(" · "), "quiet small"));
    if (model.errors_per_hour) box.append(el("div", `${number(model.errors_per_hour)} errors in the last hour`, "bad small"));
    return box;
  }
}
