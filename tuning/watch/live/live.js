// Shows the events of one sweep as they come, and sends what a person asks for.
"use strict";

const told = name => document.querySelector(`meta[name=${name}]`).content;
const get = id => document.getElementById(id);
const made = (tag, given = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), given);
  element.append(...children);
  return element;
};
const lines = (target, texts) => target.replaceChildren(...texts.map(text => made("p", {textContent: text})));
const tables = new Map();
const pending = new Map();
let newest = null;

/** When something was there first, in milliseconds: for a measurement of the page. */
const note = (name, at = performance.now()) => { document.body.dataset[name] ??= at.toFixed(); };
new PerformanceObserver(list => list.getEntries().forEach(entry => note("paint", entry.startTime)))
  .observe({type: "paint", buffered: true});
document.addEventListener("drawn", () => { if (get("s-what-happened")) note("plots"); });

function showHead(head) {
  note("head");
  newest = head;
  document.title = `${head.finished}${head.budget ? `/${head.budget}` : ""} ${head.title}`;
  lines(get("lead"), head.lead);
  get("lead").childNodes.forEach(line => line.className = "lead");
  lines(get("winner"), head.winner);
  get("winner").hidden = !head.winner.length;
  const state = [head.driver ? `${head.driver} runs it` : "no driver runs it", head.left];
  if (head.pending.length) state.push(`waits to be done: ${head.pending.join(", ")}`);
  get("state").textContent = state.filter(Boolean).join("; ");
  get("state").className = head.driver ? "runs" : "";
  get("progress").hidden = !head.budget;
  if (head.budget) Object.assign(get("progress"), {max: head.budget, value: head.finished});
  get("control").hidden = Boolean(head.readOnly);
  document.querySelectorAll(".needs-driver").forEach(button => button.disabled = !head.driver);
  document.querySelectorAll(".needs-none").forEach(button => button.disabled = Boolean(head.driver));
  if (head.space.length) document.querySelector("[name=values]").placeholder = `${head.space[0]}=… `;
  showChoices(head);
}

function showChoices(head) {
  const which = get("which"), running = new Set(head.running);
  const label = id => running.has(id) ? `${id} (runs)` : id;
  const order = [...head.trials.filter(id => running.has(id)), ...head.trials.filter(id => !running.has(id))];
  const shown = order.map(label).join();
  if (which.shown !== shown) {
    const chosen = which.value;
    which.replaceChildren(made("option", {value: "", textContent: "no trial"}),
      ...order.map(id => made("option", {value: id, textContent: label(id)})));
    which.value = chosen;
    which.shown = shown;
  }
  get("stop-trial").hidden = !which.value || !running.has(which.value) || Boolean(head.readOnly);
}

function showSection(section) {
  let part = get(`s-${section.key}`);
  if (!part) {
    part = made("section", {id: `s-${section.key}`, place: section.place}, made("h2"), made("div"),
      made("div", {className: "wide"}, made("div", {className: "plot"})), made("div", {className: "rows"}));
    const after = [...get("sections").children].find(other => other.place > section.place);
    get("sections").insertBefore(part, after || null);
  }
  const [title, text, wide, rows] = [...part.children].filter(child => !child.classList.contains("filter"));
  title.textContent = section.title;
  lines(text, section.text);
  wide.hidden = !section.figure;
  if (section.figure) draw(wide.firstChild, section.figure);
  rows.hidden = !section.rows.length;
  if (section.rows.length) showTable(section, rows);
}

/** The script of the plots is large: text and tables are there before it. */
function draw(element, figure) {
  if (window.Plotly) return drawIn(element, figure);
  if (figure.layout.height) element.style.height = `${figure.layout.height}px`;
  pending.set(element, figure);
}
document.querySelector("script[async]").addEventListener("load", () => {
  pending.forEach((figure, element) => drawIn(element, figure));
  pending.clear();
});

function showTable(section, target) {
  if (section.key === "trials") note("table");
  const column = section.header.indexOf("trial");
  const cell = (text, place) => place !== column ? made("td", {textContent: text, className: text.length > 24 ? "long" : ""}) :
    made("td", {textContent: text, className: "trial", onclick: () => choose(text)});
  const table = made("table", {},
    made("thead", {}, made("tr", {}, ...section.header.map(name => made("th", {textContent: name})))),
    made("tbody", {}, ...section.rows.map(row => made("tr", {}, ...row.map(cell)))));
  const [top, left] = [target.scrollTop, target.scrollLeft];
  target.replaceChildren(table);
  if (!tables.has(section.key)) tables.set(section.key, {column: -1, down: false, words: ""});
  enhance(table, tables.get(section.key));
  [target.scrollTop, target.scrollLeft] = [top, left];
}

let log = null;
function choose(trial) {
  get("which").value = trial;
  showLog();
  get("trial").scrollIntoView({block: "nearest"});
}

function showLog() {
  if (log) log.close();
  const trial = get("which").value, target = get("log");
  target.textContent = "";
  target.hidden = !trial;
  get("stop-trial").elements.trial.value = trial;
  if (newest) showChoices(newest);
  if (!trial) return;
  log = new EventSource(`/logs/${encodeURIComponent(trial)}/${told("sweep")}`);
  log.onopen = () => target.textContent = "";
  log.onmessage = event => {
    const atEnd = target.scrollTop + target.clientHeight > target.scrollHeight - 40;
    const all = target.textContent + JSON.parse(event.data).map(line => `${line}\n`).join("");
    target.textContent = all.slice(-200000);
    if (atEnd) target.scrollTop = target.scrollHeight;
  };
}
get("which").onchange = showLog;

for (const form of document.querySelectorAll("form[data-do]")) form.onsubmit = async event => {
  event.preventDefault();
  if (form.dataset.ask && !confirm(form.dataset.ask)) return;
  get("said").textContent = "…";
  try {
    const answer = await fetch(`/do/${form.dataset.do}/${told("sweep")}`, {
      method: "POST",
      headers: {"X-Tune-Token": told("token"), "Content-Type": "application/json"},
      body: JSON.stringify(Object.fromEntries(new FormData(form))),
    });
    const text = await answer.text();
    get("said").textContent = text.startsWith("{") ? JSON.parse(text).said : text;
  } catch (error) {
    get("said").textContent = `the server does not answer (${error.message})`;
  }
};

const events = new EventSource(`/events/${told("sweep")}`);
events.addEventListener("head", event => showHead(JSON.parse(event.data)));
events.addEventListener("section", event => showSection(JSON.parse(event.data)));
events.addEventListener("problem", event => {
  get("problem").textContent = JSON.parse(event.data);
  get("problem").hidden = !get("problem").textContent;
});
events.onerror = () => {
  get("state").textContent = "the server does not answer; the page continues when it does";
  get("state").className = "lost";
};
