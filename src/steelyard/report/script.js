"use strict";
(() => {
  // Tooltip, hidden curves and zoom for charts over time.
  // The page is complete without this script.
  const charts = [...document.querySelectorAll("svg.along")].map(prepare);
  const moments = JSON.parse(document.getElementById("moments").textContent);
  const tip = document.getElementById("tip");
  document.documentElement.classList.add("scripted");
  let shown = null; // first and last row of the zoomed range; null shows all rows

  function prepare(svg) {
    const edge = {};
    for (const name of ["left", "right", "top", "bottom", "x0", "x1", "y0", "y1"]) edge[name] = Number(svg.dataset[name]);
    const lines = [...svg.querySelectorAll("path.line")].map(path => {
      const title = path.querySelector("title");
      const name = title ? title.textContent : "";
      if (title) title.remove();
      const points = [...(path.getAttribute("d") || "").matchAll(/[ML](-?[\d.]+) (-?[\d.]+)/g)].map(m => [Number(m[1]), Number(m[2])]);
      return { path, name, points };
    });
    const cursor = document.createElementNS(svg.namespaceURI, "line");
    cursor.setAttribute("class", "cursor");
    svg.append(cursor);
    return { svg, edge, lines, cursor, moving: svg.querySelector(".moving") };
  }

  const number = value => Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));

  function label(row) {
    if (!moments.length) return "row " + Math.round(row).toLocaleString("en");
    let best = moments[0];
    for (const moment of moments) if (Math.abs(moment[0] - row) < Math.abs(best[0] - row)) best = moment;
    return "row " + Math.round(row).toLocaleString("en") + " · " + best[1];
  }

  // Conversion between pixels and rows at the current zoom.
  const range = chart => shown || [chart.edge.x0, chart.edge.x1];
  function rowAt(chart, event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.svg.getScreenCTM().inverse());
    const { left, right } = chart.edge, [a, b] = range(chart);
    const share = Math.min(1, Math.max(0, (point.x - left) / (right - left)));
    return a + share * (b - a);
  }
  const drawnX = (chart, row) => chart.edge.left + (row - chart.edge.x0) / (chart.edge.x1 - chart.edge.x0) * (chart.edge.right - chart.edge.left);

  function nearest(points, x) {
    let low = 0, high = points.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (points[middle][0] < x) low = middle; else high = middle; }
    return points.length && Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? points[low] : points[high];
  }

  function point(chart, event) {
    const row = rowAt(chart, event), x = drawnX(chart, row), { edge } = chart;
    const [a, b] = range(chart), at = edge.left + (row - a) / (b - a) * (edge.right - edge.left);
    for (const [key, value] of [["x1", at], ["x2", at], ["y1", edge.top], ["y2", edge.bottom]]) chart.cursor.setAttribute(key, value);
    chart.cursor.classList.add("on");
    tip.replaceChildren();
    const head = document.createElement("b");
    head.textContent = label(row);
    tip.append(head);
    for (const line of chart.lines) {
      if (line.path.classList.contains("off") || !line.name) continue;
      const found = nearest(line.points, x);
      if (!found) continue;
      const value = edge.y0 + (edge.bottom - found[1]) / (edge.bottom - edge.top) * (edge.y1 - edge.y0);
      const item = document.createElement("span");
      item.className = line.path.getAttribute("class").replace("line", "key");
      item.textContent = line.name + " " + number(value);
      tip.append(item);
    }
    tip.hidden = false;
    const width = tip.offsetWidth, room = document.documentElement.clientWidth;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, room - width - 6)) + "px";
    tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 12) + "px";
  }

  function leave(chart) { chart.cursor.classList.remove("on"); tip.hidden = true; }

  function draw() {
    for (const chart of charts) {
      const { edge, svg, moving } = chart, [a, b] = range(chart);
      const xa = drawnX(chart, a), xb = drawnX(chart, b), scale = (edge.right - edge.left) / (xb - xa);
      moving.setAttribute("transform", shown ? `matrix(${scale},0,0,1,${edge.left - xa * scale},0)` : "");
      const ticks = [...svg.querySelectorAll(".xtick")];
      ticks.forEach((tick, index) => {
        if (!tick.dataset.all) tick.dataset.all = JSON.stringify([tick.textContent, tick.getAttribute("x")]);
        const [text, x] = JSON.parse(tick.dataset.all);
        if (!shown) { tick.textContent = text; tick.setAttribute("x", x); return; }
        const share = ticks.length > 1 ? index / (ticks.length - 1) : 0, row = a + share * (b - a);
        tick.textContent = moments.length ? label(row).split(" · ")[1] : Math.round(row).toLocaleString("en");
        tick.setAttribute("x", edge.left + share * (edge.right - edge.left));
      });
    }
  }

  for (const chart of charts) {
    let begin = null;
    chart.svg.addEventListener("pointerdown", event => { if (event.pointerType === "mouse") begin = rowAt(chart, event); });
    chart.svg.addEventListener("pointermove", event => point(chart, event));
    chart.svg.addEventListener("pointerleave", () => leave(chart));
    chart.svg.addEventListener("pointerup", event => {
      const end = rowAt(chart, event), [a, b] = range(chart);
      if (begin !== null && Math.abs(end - begin) > (b - a) / 50) { shown = [Math.min(begin, end), Math.max(begin, end)]; draw(); }
      begin = null;
    });
    chart.svg.addEventListener("dblclick", () => { shown = null; draw(); });
  }

  for (const key of document.querySelectorAll(".legend.live .key[data-series]")) {
    key.tabIndex = 0;
    key.setAttribute("role", "button");
    key.setAttribute("aria-pressed", "true");
    const turn = () => {
      const series = key.dataset.series, off = key.getAttribute("aria-pressed") === "true";
      for (const other of document.querySelectorAll(".legend.live .key")) if (other.dataset.series === series) other.setAttribute("aria-pressed", String(!off));
      for (const shape of document.querySelectorAll("svg.along [data-series]")) if (shape.dataset.series === series) shape.classList.toggle("off", off);
    };
    key.addEventListener("click", turn);
    key.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); turn(); } });
  }
})();
