// The sections of the charts, their controls, and the selection that they share.
"use strict";

const option = (names, chosen, labels = {}) => names.map(name => make("option", {value: name, textContent: labels[name] || name, selected: name === chosen}));
function choice(label, key, names, labels = {}) {
  const box = make("select", {}, ...option(names(), view[key], labels));
  box.onchange = () => { view[key] = box.value; redrawCharts(); };
  box.refresh = () => {
    const found = names();
    if (found.join("\n") !== [...box.options].map(one => one.value).join("\n")) box.replaceChildren(...option(found, view[key], labels));
  };
  return make("label", {}, `${label} `, box);
}
function tick(label, key) {
  const box = make("input", {type: "checkbox", checked: view[key]});
  box.onchange = () => { view[key] = box.checked; redrawCharts(); };
  return make("label", {}, box, ` ${label}`);
}
function smoothing() {
  const box = make("input", {type: "range", min: 0, max: 0.99, step: 0.01, value: view.smooth});
  box.oninput = () => { view.smooth = Number(box.value); redrawCharts(); };
  return make("label", {}, "smoothing ", box);
}

const two = () => varying().length > 1 && valued().length > 1;
const CHARTS = [
  {key: "history", title: "Optimization history", place: 10, figure: historyFigure, when: () => valued().length > 0},
  {key: "curves", title: "Learning curves", place: 20, figure: curvesFigure, when: () => sweep.ranked.some(row => row.curves[view.metric]),
    controls: () => [smoothing(), tick("log values", "logY"), tick("log steps", "logX")],
    text: () => [sweep.head.rungs.length ? `Dotted lines: the rungs, at steps ${sweep.head.rungs.map(short).join(", ")}.` : "",
      sweep.ranked.length > MAX_CURVES ? `The ${MAX_CURVES} best of ${sweep.ranked.length} trials are drawn, and those selected.` : "", ...sweep.head.remarks]},
  {key: "front", title: "Pareto front", place: 25, figure: frontFigure, when: () => sweep.head.objectives.length > 1,
    controls: () => sweep.head.objectives.length < 3 ? [] : [choice("across", "frontX", () => sweep.head.objectives.map(([n]) => n)), choice("up", "frontY", () => ["", ...sweep.head.objectives.map(([n]) => n)])]},
  {key: "parallel", title: "Parallel coordinates", place: 30, wide: true, slow: true, figure: parallelFigure, when: () => varying().length && valued().length > 1,
    text: () => ["Drag along an axis to select trials; a click on the range removes it."]},
  {key: "slices", title: "Value by parameter", place: 50, wide: true, figure: slicesFigure, when: () => varying().length && valued().length > 1,
    controls: () => [choice("parameter", "slice", () => ["", ...varying()], {"": "the six most important"})]},
  {key: "pair", title: "Two parameters", place: 41, figure: pairFigure, when: two,
    controls: () => [choice("across", "x", varying), choice("up", "y", () => ["", ...varying()], {"": "the next most important"}), choice("color", "colour", () => ["value", "rank"])]},
  {key: "distribution", title: "Distribution of values", place: 60, figure: distributionFigure, when: () => valued().length > 1},
];

function redrawCharts() {
  if (!sweep.head) return;
  for (const one of CHARTS) {
    const isThere = one.when(), part = get(`s-${one.key}`) || (isThere ? sectionFor(one.key, one.place, one.title, one.wide) : null);
    if (!part) continue;
    if (part.hidden === isThere) contents();
    part.hidden = !isThere;
    if (!isThere) continue;
    if (!part.plot) {
      part.plot = make("div", {className: one.slow ? "plot slow" : "plot", style: "height:400px"});
      part.notes = make("div");
      part.controls = make("div", {className: "tools"}, ...(one.controls ? one.controls() : []));
      part.append(part.notes, part.controls, make("div", {className: "scrolls"}, part.plot));
    }
    part.controls.querySelectorAll("select").forEach(box => box.refresh && box.refresh());
    paragraphs(part.notes, (one.text ? one.text() : []).filter(Boolean));
    if (one.key === "parallel" && view.source === "parallel" && part.plot.revision === view.revision) continue;  // it shows its own ranges
    part.plot.revision = view.revision;
    draw(part.plot, () => one.figure(part.plot), linked => {
      linked.on("plotly_restyle", () => one.key === "parallel" && brushed(linked));
      linked.on("plotly_selected", event => event && select(event.points.map(point => point.customdata).filter(Boolean), one.key));
      linked.on("plotly_deselect", () => select(null, one.key));
      linked.on("plotly_click", event => {
        const id = event.points && event.points[0].customdata;
        if (typeof id === "string") toggle(id, one.key, event.event && event.event.shiftKey);
      });
    });
  }
}

// ---- the selection: a set of trials that every chart and the table show; null is all

function select(ids, source) {
  view.selected = ids && ids.length ? new Set(ids) : null;
  view.source = source;
  view.revision++;
  if (source === "parallel") { const plot = get("s-parallel"); plot.plot.revision = view.revision; }
  only.checked = Boolean(view.selected) && source !== "table";
  showSelection();
  redrawCharts();
}

function toggle(id, source, add = true) {
  const chosen = new Set(add ? view.selected || [] : []);
  if (add && chosen.has(id)) chosen.delete(id); else chosen.add(id);
  select([...chosen], source);
}

const escapeKey = event => { if (event.key === "Escape" && view.selected && get("detail").hidden) select(null, "key"); };
document.addEventListener("keydown", escapeKey);

function showBar() {
  const bar = get("bar");
  if (!bar.metric) {
    view.metric = sweep.head.objectives[0][0];
    bar.metric = choice("metric", "metric", metrics);
    bar.said = make("span", {role: "status"});
    bar.compare = make("a", {className: "button", textContent: "Compare"});
    bar.clear = make("button", {type: "button", textContent: "Clear selection", onclick: () => select(null, "bar")});
    bar.replaceChildren(bar.metric, bar.said, bar.compare, bar.clear);
  }
  bar.querySelector("select").refresh();
  bar.hidden = !sweep.trials.size;
  showSelection();
}

function showSelection() {
  const bar = get("bar"), chosen = view.selected ? [...view.selected] : [];
  bar.said.textContent = chosen.length ? `${chosen.length} of ${sweep.trials.size} trials selected` : "";
  bar.clear.hidden = !chosen.length;
  bar.compare.hidden = !chosen.length || chosen.length > 8;
  bar.compare.textContent = chosen.length === 1 ? `Open ${chosen[0]}` : "Compare";
  bar.compare.href = chosen.length === 1 ? `#trial/${chosen[0]}` : `#compare/${chosen.join(",")}`;
  showTrials();
}
