"use strict";
const clock = (at, span) => new Date(1000 * at).toLocaleString([], span > 172800
  ? { month: "short", day: "numeric" } : span > 600
    ? { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } : { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

// Draw dashed lines where the learner detected concept drift.
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

// The chart object is reused when points are added, so that zoom and cursor are kept.
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

const latest = (chart) => chart.setLegend({ idx: chart.data[0].length - 1 }); // the latest values are shown while the mouse is not over the chart

function makeChart(holder, data, series) {
  const axis = { stroke: ink("--quiet"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line"), width: 1 } };
  const options = {
    width: holder.clientWidth || 600, height: 240, padding: [null, 32, null, null], cursor: { drag: { x: true, y: false } },
    scales: { y: { range: (_u, low, high) => [0, Math.max(high ?? 1, series[0].top ?? 1)] } },
    axes: [{ ...axis, space: 90, values: (u, ticks) => ticks.map((at) => clock(at, u.scales.x.max - u.scales.x.min)) }, { ...axis, size: 52 }],
    series: [{ label: "at", value: (_u, at) => (at === null ? "–" : moment(at)) },
      ...series.map((s) => ({ label: s.name, stroke: ink(s.colour), width: 2, points: { show: Boolean(s.dots), size: 5 }, value: (_u, v) => (v === null || v === undefined ? "–" : s.show(v)) }))],
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
  holder.onfocus = () => legend.setAttribute("aria-live", "polite"); // only while focused; otherwise a screen reader would read every update
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
