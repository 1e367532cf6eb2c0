// The frame of every page: head, sections, table of contents, drawing, and views by address.
"use strict";

const get = id => document.getElementById(id);
const told = name => (document.querySelector(`meta[name=${name}]`) || {}).content;
const make = (tag, given = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), given);
  for (const name of ["role", "scope", "for"]) if (given[name]) element.setAttribute(name, given[name]);
  if (given.label) element.setAttribute("aria-label", given.label);
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
};
/** A text whose options and dates are not broken at their hyphens. */
const unbroken = text => text.split(/(--[a-z-]+|\d{4}-\d\d-\d\d)/).map((part, at) => at % 2 ? make("span", {className: "unbroken", textContent: part}) : part);
const paragraphs = (target, texts, className = "") =>
  target.replaceChildren(...texts.map(text => make("p", {className}, ...unbroken(text))));
/** Five significant digits of a number, other values as YAML has them. */
const short = value => value === null || value === undefined ? "" :
  typeof value === "number" ? (value && Math.abs(value) < 1e-4 ? value.toExponential(4).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(5)))) :
  typeof value === "string" ? value : JSON.stringify(value);
/** A user's text in a chart: plotly interprets some HTML in its labels. */
const escaped = text => String(text).replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`);
const later = (call, wait) => { let timer = 0; return () => { clearTimeout(timer); timer = setTimeout(call, wait); }; };

/** When something was there first, in milliseconds: for a measurement of the page. */
const note = (name, at = performance.now()) => { document.body.dataset[name] ??= at.toFixed(); };
new PerformanceObserver(list => list.getEntries().forEach(entry => note("paint", entry.startTime)))
  .observe({type: "paint", buffered: true});

// ---- charts are drawn when they come near the window, one by one, so that the page stays responsive

const touched = matchMedia("(hover: none)");  // a finger scrolls the page; buttons would cover a legend
const wanted = new Set();
const near = new IntersectionObserver(entries => {
  for (const entry of entries) {
    entry.target.isNear = entry.isIntersecting;
    if (entry.isIntersecting && entry.target.stale) want(entry.target);
  }
}, {rootMargin: "400px"});

/** Draw in an element what a function returns, `{data, layout}`; again after each call. */
function draw(element, figure, onDrawn = null) {
  Object.assign(element, {figure, onDrawn, stale: true});
  near.observe(element);
  if (element.isNear) want(element);
}

function want(element) {
  wanted.add(element);
  loadPlotly();
  if (window.Plotly && wanted.size === 1) setTimeout(drawNext);
}

function drawNext() {
  // parallel coordinates last: without a GPU they take longer than all others
  const all = [...wanted], element = all.find(one => !one.classList.contains("slow")) || all[0];
  wanted.delete(element);
  if (element) drawNow(element);
  if (wanted.size) setTimeout(drawNext);
  else { note("plots"); document.dispatchEvent(new Event("drawn")); }
}

function drawNow(element) {
  element.stale = false;
  try {
    const found = element.figure(), {data, layout} = found;
    element.style.minWidth = layout.meta && layout.meta.min_width ? `${layout.meta.min_width}px` : "";
    element.style.height = `${layout.height || 400}px`;
    const config = {
      displaylogo: false, responsive: true, displayModeBar: touched.matches ? false : "hover",
      showSendToCloud: false, plotlyServerURL: "",  // the button uploads the data of the plot
    };
    const first = !element.data;
    Plotly.react(element, data, themed(layout), config);
    if (first && element.onDrawn) element.onDrawn(element);
  } catch (error) {  // parallel coordinates without WebGL; the others are drawn
    element.textContent = `this plot cannot be drawn here: ${error.message}`;
  }
}

/** The library of the charts is large: text and tables are there before it. */
function loadPlotly() {
  const inline = get("plotly");
  if (!inline || inline.done) return;
  inline.done = true;
  requestAnimationFrame(() => setTimeout(() => {
    const script = make("script", inline.dataset.src ? {src: inline.dataset.src} : {textContent: inline.textContent});
    script.onload = () => setTimeout(drawNext);
    document.head.append(script);
    if (window.Plotly) setTimeout(drawNext);
  }));
}

/** The layout in the colours of the page; a zoom outlasts new data. */
function themed(layout) {
  const style = getComputedStyle(document.documentElement);
  const [ink, line, dim] = ["--ink", "--line", "--dim"].map(name => style.getPropertyValue(name).trim());
  const found = {uirevision: "same", ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)"};
  found.font = {family: "system-ui, sans-serif", ...layout.font, color: ink};
  found.modebar = {bgcolor: "rgba(0,0,0,0)", color: dim, activecolor: ink};
  found.hoverlabel = {font: {family: "system-ui, sans-serif"}};
  if (touched.matches) found.dragmode = false;
  for (const axis of Object.keys(layout).filter(key => /^[xy]axis\d*$/.test(key)).concat("xaxis", "yaxis"))
    found[axis] = {...layout[axis], gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true};
  return found;
}

const redrawAll = () => {
  for (const element of document.querySelectorAll(".plot"))
    if (element.figure) draw(element, element.figure, element.onDrawn);
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

// ---- sections

/** The element of a section; made at its place if it is not there. */
function sectionFor(key, place, title, wide) {
  let part = get(`s-${key}`);
  if (!part) {
    part = make("section", {id: `s-${key}`, place, className: wide ? "whole" : ""}, make("h2"));
    part.setAttribute("aria-labelledby", `h-${key}`);
    part.firstChild.id = `h-${key}`;
    const after = [...get("overview").children].find(other => other.place > place);
    get("overview").insertBefore(part, after || null);
    contents();
  }
  part.firstChild.textContent = title;
  part.firstChild.hidden = title === document.title;  // the page has it as its heading
  return part;
}

const contents = later(() => {
  const links = [...get("overview").children].filter(part => !part.hidden).map(part =>
    make("a", {href: `#${part.id}`, textContent: part.firstChild.textContent}));
  get("contents").replaceChildren(...links);
  get("contents").hidden = links.length < 3 || !get("detail").hidden;
}, 0);

function showSection(section) {
  const part = sectionFor(section.key, section.place, section.title, section.wide);
  if (!part.parts) {
    part.parts = {text: make("div"), html: make("div"), plot: make("div", {className: "plot"}), table: make("div")};
    part.append(part.parts.text, part.parts.html, make("div", {className: "scrolls"}, part.parts.plot), part.parts.table);
  }
  paragraphs(part.parts.text, section.text);
  part.parts.plot.parentElement.hidden = !section.figure;
  if (section.html) part.parts.html.innerHTML = section.html;  // a template of the program, which escapes
  if (section.figure) {
    if (section.figure.data.length < 2 && !section.figure.layout.showlegend) section.figure.layout.margin.t = 15;  // it has no legend
    part.parts.plot.style.height = `${section.figure.layout.height || 400}px`;
    draw(part.parts.plot, () => section.figure);
  }
  if (section.rows.length) {
    part.table ||= new Table(part.parts.table, {name: section.title, key: section.key});
    part.table.show(section.header.map((title, at) => ({key: at, title})), section.rows);
  }
}

// ---- views: the sweep at any other address, a trial at #trial/t0003, a difference at #compare/t0001,t0002

const VIEWS = {};
function route() {
  const [name, ...rest] = decodeURIComponent(location.hash.slice(1)).split("/");
  const view = Object.hasOwn(VIEWS, name) ? VIEWS[name] : null;
  const before = get("detail").hidden;
  get("detail").hidden = !view;
  get("overview").hidden = Boolean(view);
  get("bar").classList.toggle("away", Boolean(view));
  document.body.classList.toggle("in-detail", Boolean(view));
  contents();
  if (view) {
    view(get("detail"), rest.join("/"));
    scrollTo(0, Math.min(scrollY, get("detail").offsetTop));
    get("detail").focus({preventScroll: true});
  } else if (!before) {
    redrawAll();
    const section = document.getElementById(location.hash.slice(1));
    if (section) section.scrollIntoView();
  }
}
addEventListener("hashchange", route);

// ---- messages: those in the page itself, and on the live page those of the server

const HANDLERS = {section: showSection};
const receive = (kind, data) => HANDLERS[kind](data);
function start() {
  for (const data of document.querySelectorAll("script.message"))
    if (HANDLERS[data.dataset.kind]) receive(data.dataset.kind, JSON.parse(data.textContent));
  get("detail").tabIndex = -1;
  route();
}
document.addEventListener("DOMContentLoaded", start);
