"use strict";
// Text from models is always inserted as text, never as markup.
const el = (tag, text, cls) => {
  const e = document.createElement(tag);
  if (text !== undefined && text !== null) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};
// Return an element with a name in which lines can break after separators.
const breakable = (tag, name) => {
  const e = el(tag);
  for (const part of name.split(/(?<=[_.-])/)) e.append(part, el("wbr"));
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
const counted = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
const share = (x) => (x === null || x === undefined ? "–" : (100 * x).toFixed(x > 0.1 ? 0 : 1) + "\u00a0%");
const measure = (x) => (x === null || x === undefined ? "–" : x.toFixed(3));
const moment = (at) => {
  const then = new Date(1000 * at);
  const today = then.toDateString() === new Date().toDateString();
  return then.toLocaleString([], today ? { timeStyle: "medium", hourCycle: "h23" } : { dateStyle: "short", timeStyle: "short" });
};
const bytes = (n) => {
  if (n === null || n === undefined) return "–";
  const step = Math.min(4, Math.floor(Math.log10(Math.max(n, 1)) / 3));
  return `${(n / 1000 ** step).toFixed(step && n / 1000 ** step < 10 ? 1 : 0)} ${["bytes", "kB", "MB", "GB", "TB"][step]}`;
};
const duration = (s) => (s === null || s === undefined ? "–" : s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : s < 129600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`);
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

async function fetchData(path, wanted) {
  const key = sessionStorage.getItem("key");
  const response = await fetch(path, key ? { headers: { Authorization: "Bearer " + key } } : {});
  if (response.status === 401) {
    const problem = await response.json();
    requestKey(key ? `The key was refused: ${problem.detail}` : "");
    throw new Error("a key is required");
  }
  if (!response.ok) throw Object.assign(new Error((await response.json()).detail), { status: response.status });
  return wanted === "text" ? response.text() : response.json();
}

// Return the result of a request, or null if it fails. A card without data is not shown.
const optional = (path) => fetchData(path).catch(() => null);

function requestKey(complaint) {
  const form = document.getElementById("key");
  form.hidden = false;
  main.hidden = true;
  const said = document.getElementById("refused");
  said.textContent = complaint;
  said.hidden = !complaint;
  form.onsubmit = (event) => {
    event.preventDefault();
    sessionStorage.setItem("key", new FormData(form).get("key").trim());
    location.reload();
  };
}

const sum = (list) => list.reduce((a, b) => a + b, 0);

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
