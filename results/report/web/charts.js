// The charts of a sweep, drawn from its trials: one choice of metric, one selection for all.
"use strict";

const MAX_CURVES = 300, MAX_NAMED = 20, CELLS = 24;
const sweep = {head: null, trials: new Map(), ranked: []};
const view = {metric: "", selected: null, source: "", revision: 0, smooth: 0, logX: false, logY: false, slice: "", x: "", y: "", colour: "value", frontX: "", frontY: ""};

// ---- the data of charts

const clipped = v => typeof v === "number" ? Math.max(-1e300, Math.min(1e300, v)) : null;
const value = row => clipped(row.values[view.metric]);
const valued = () => sweep.ranked.filter(row => row.eligible && value(row) !== null);
/** 1 when less is better, else -1; a metric that is no objective counts as less is better. */
const sign = () => (sweep.head.objectives.find(([name]) => name === view.metric) || [])[1] === "max" ? -1 : 1;
const isObjective = () => sweep.head.objectives.some(([name]) => name === view.metric);
const isCategory = name => (sweep.head.axes[name] || {}).categories || [...sweep.trials.values()].some(row => name in row.params && typeof row.params[name] !== "number");
const isLog = name => (sweep.head.axes[name] || {}).log && [...sweep.trials.values()].every(row => !(name in row.params) || row.params[name] > 0);
/** Parameters that take more than one value, the most important first. */
const varying = () => sweep.head.parameters.filter(name =>
  new Set([...sweep.trials.values()].map(row => JSON.stringify(row.params[name]))).size > 1);
const metrics = () => [...new Set([...sweep.head.objectives.map(([name]) => name), ...sweep.ranked.flatMap(row => Object.keys(row.values))])];
const coordinate = (row, name) => isCategory(name) ? name in row.params ? short(row.params[name]) : "(none)" : row.params[name];

const logTicks = values => Math.max(...values) >= 100 * Math.min(...values) ? {dtick: 1, exponentformat: "power"} : {exponentformat: "power", nticks: 6};
const categories = name => [...new Set([...sweep.trials.values()].map(row => coordinate(row, name)))].sort((a, b) => compare(a, b, 1));

function axisOf(name) {
  const type = isCategory(name) ? "category" : isLog(name) ? "log" : "linear";
  if (type === "category") return {title: {text: escaped(name)}, type, categoryorder: "array", categoryarray: categories(name)};
  const own = [...sweep.trials.values()].map(row => row.params[name]).filter(v => v !== undefined), isWhole = own.every(Number.isInteger);
  return {title: {text: escaped(name)}, type, ...(type === "log" ? logTicks(own) : isWhole && Math.max(...own) - Math.min(...own) <= 10 ? {dtick: 1} : {})};
}

/** From the best value to the worst tenth, if that tenth would compress the rest. */
function limits(values) {
  if (values.length < 5) return null;
  const costs = values.map(v => sign() * v).sort((a, b) => a - b);
  const [best, cut, worst] = [costs[0], costs[Math.floor(0.9 * (costs.length - 1))], costs.at(-1)];
  if (cut === best || worst - best < 4 * (cut - best)) return null;
  return [sign() * best, sign() * cut].sort((a, b) => a - b);
}

/** Exponential mean as in TensorBoard: the first values weigh no more than later ones. */
function smoothed(values) {
  let last = 0, count = 0;
  return values.map(v => {
    if (v === null || !view.smooth) return v;
    last = last * view.smooth + (1 - view.smooth) * v;
    return last / (1 - view.smooth ** ++count);
  });
}

// ---- what charts have in common

const base = (x, y, more = {}) => ({
  height: 400, margin: {l: 60, r: 20, t: more.showlegend === false ? 15 : 45, b: 45}, hovermode: "closest", selectionrevision: view.revision, selections: [],
  legend: {orientation: "h", x: 0, y: 1, yanchor: "bottom"}, showlegend: true,
  ...more, xaxis: {title: {text: escaped(x)}, ...more.xaxis}, yaxis: {title: {text: escaped(y)}, ...more.yaxis},
});
const whole = values => values.length && Math.max(...values) <= 10 ? {dtick: 1} : {};
const picked = rows => view.selected ? rows.flatMap((row, i) => view.selected.has(row.id) ? [i] : []) : undefined;
const points = (rows, x, y, marker, name = "") => ({
  type: "scatter", mode: "markers", x: rows.map(x), y: rows.map(y), customdata: rows.map(row => row.id), name, marker,
  selectedpoints: picked(rows), unselected: {marker: {opacity: 0.12}}, hovertemplate: "%{customdata}: %{x:.5g}, %{y:.5g}<extra></extra>",
});
const byState = rows => Object.keys(sweep.head.colours.states).map(state => [state, rows.filter(row => row.state === state)]).filter(([, of]) => of.length);
const limited = (layout, values) => {
  const found = limits(values);
  if (!found) return layout;
  const margin = 0.05 * (found[1] - found[0]);
  layout.yaxis.range = [found[0] - margin, found[1] + margin];
  layout.annotations = [{text: "the worst values are outside", showarrow: false, x: 1, xref: "paper", yref: "paper", ...(sign() > 0 ? {y: 1, yanchor: "top"} : {y: 0, yanchor: "bottom"})}];
  return layout;
};
/** From the worst to the best value; the best stands out from the page. */
const scale = () => {
  const colours = matchMedia("(prefers-color-scheme: dark)").matches ? ["#3f3a6b", "#3b6a9b", "#21a08c", "#7ad151", "#fde725"] : ["#dbe3c8", "#7cc484", "#21918c", "#31558a", "#440154"];
  return {colorscale: colours.map((colour, i) => [i / 4, colour]), reversescale: sign() > 0};
};

// ---- charts

function historyFigure() {
  const rows = [...sweep.ranked].filter(row => value(row) !== null).sort((a, b) => a.number - b.number);
  const data = byState(rows).map(([state, of]) =>
    ({...points(of, row => row.number, value, {color: sweep.head.colours.states[state], size: 7}, state), hovertemplate: "%{customdata}: %{y:.5g}<extra></extra>"}));
  const good = rows.filter(row => row.eligible);
  if (good.length && isObjective()) {
    let best = Infinity;
    const y = good.map(row => sign() * (best = Math.min(best, sign() * value(row))));
    data.push({type: "scatter", mode: "lines", name: "best so far", x: good.map(row => row.number), y, line: {shape: "hv", color: sweep.head.colours.best}, hoverinfo: "skip"});
  }
  return {data, layout: limited(base("trial", view.metric, {xaxis: whole(rows.map(row => row.number))}), good.map(value))};
}

function curvesFigure() {
  const {states, best, rung} = sweep.head.colours, all = sweep.ranked.filter(row => row.curves[view.metric]);
  const chosen = view.selected ? all.filter(row => view.selected.has(row.id)).slice(0, MAX_NAMED) : [];
  const shown = all.slice(0, MAX_CURVES), data = [];
  const joined = (rows, name, color, opacity) => {  // a browser draws one line faster than many
    const flat = of => rows.flatMap(row => [...of(row), null]);
    data.push({type: "scatter", mode: view.selected ? "lines" : "lines+markers", name, x: flat(row => row.steps), y: flat(row => smoothed(row.curves[view.metric])),
      customdata: rows.flatMap(row => Array(row.steps.length + 1).fill(row.id)), marker: {size: 3}, line: {color, width: 1}, opacity, connectgaps: false,
      hovertemplate: "%{customdata} at %{x}: %{y:.5g}<extra></extra>"});
  };
  if (view.selected) joined(shown.filter(row => !chosen.includes(row)), "others", rung, 0.15);
  else for (const [state, of] of byState(shown)) joined(of, state, states[state], 0.6);
  const named = view.selected ? chosen : all.filter(row => row.id === sweep.head.winnerTrial);
  for (const row of named)
    data.push({type: "scatter", mode: "lines", name: row.id, x: row.steps, y: smoothed(row.curves[view.metric]), customdata: row.steps.map(() => row.id),
      line: {width: view.selected ? 2 : 3, ...(view.selected ? {} : {color: best})}, hovertemplate: "%{customdata} at %{x}: %{y:.5g}<extra></extra>"});
  const shapes = sweep.head.rungs.map(at => ({type: "line", x0: at, x1: at, y0: 0, y1: 1, yref: "paper", line: {color: rung, dash: "dot", width: 1}}));
  const layout = base("step", view.metric, {shapes, xaxis: {type: view.logX ? "log" : "linear", ...(view.logX ? {} : whole(shown.map(row => row.step)))}, yaxis: {type: view.logY ? "log" : "linear"}});
  return {data, layout: view.logY ? layout : limited(layout, shown.flatMap(row => row.curves[view.metric].filter(v => v !== null)))};
}

function parallelFigure(element) {
  const only = view.selected && view.source !== "parallel", rows = valued().filter(row => !only || view.selected.has(row.id)), values = rows.map(value);
  const [low, high] = limits(values) || [Math.min(...values), Math.max(...values)];
  const dimensions = varying().map(name => {
    if (isCategory(name)) {
      const found = categories(name), places = rows.map(row => found.indexOf(coordinate(row, name)));
      return {label: escaped(name), values: places, tickvals: found.map((_, i) => i), ticktext: found, range: [-0.1, found.length - 0.9]};
    }
    const log = isLog(name), all = valued().map(row => row.params[name]).filter(v => v !== undefined);
    const at = v => v === undefined ? null : log ? Math.log10(v) : v, range = [at(Math.min(...all)), at(Math.max(...all))];
    const few = !log && all.every(Number.isInteger) && range[1] - range[0] <= 10;
    const ticks = log ? decades(range) : few ? {tickvals: Array.from({length: range[1] - range[0] + 1}, (_, i) => range[0] + i)} : {};
    return {label: escaped(name), values: rows.map(row => at(row.params[name])), range, ...ticks};
  });
  for (const [name] of [...sweep.head.objectives.filter(([name]) => name !== view.metric), [view.metric]])
    dimensions.push({label: escaped(name), values: rows.map(row => clipped(row.values[name]))});
  element.rows = rows;
  const line = {color: values, cmin: low, cmax: high, showscale: true, ...scale()}, slanted = dimensions.length > 6;
  const trace = {type: "parcoords", line, dimensions, labelangle: slanted ? -20 : 0, uirevision: view.source === "parallel" ? view.brushed : view.revision};
  view.brushed = trace.uirevision;
  return {data: [trace], layout: {height: 420, margin: {l: 80, r: 60, t: slanted ? 110 : 60, b: 30}, meta: {min_width: 100 * dimensions.length}}};
}

/** Ticks of a logarithmic axis: whole decades, or 1, 2 and 5 of each if there are few. */
function decades([low, high]) {
  const parts = high - low > 3 ? [1] : [1, 2, 5], all = [];
  for (let e = Math.floor(low); e <= high; e++) for (const part of parts) all.push(part * 10 ** e);
  const inside = all.filter(v => Math.log10(v) >= low && Math.log10(v) <= high);
  return {tickvals: inside.map(Math.log10), ticktext: inside.map(v => short(Number(v.toPrecision(3))))};
}

/** The trials that are within every range that was drawn on an axis. */
function brushed(element) {
  const within = (v, ranges) => (Array.isArray(ranges[0]) ? ranges : [ranges]).some(([a, b]) => v >= a && v <= b);
  const drawn = element.data[0].dimensions.filter(one => one.constraintrange && one.constraintrange.length);
  select(drawn.length ? element.rows.filter((_, i) => drawn.every(one => within(one.values[i], one.constraintrange))).map(row => row.id) : null, "parallel");
}

function slicesFigure() {
  const names = view.slice ? [view.slice] : varying().slice(0, 6), rows = valued();
  const columns = names.length < 2 ? 1 : innerWidth < 700 ? 1 : names.length === 4 ? 2 : Math.min(3, names.length), lines = Math.ceil(names.length / columns);
  const color = rows.map(row => row.number), layout = base("", "", {height: Math.max(380, 250 * lines), showlegend: false, grid: {rows: lines, columns, pattern: "independent", ygap: 0.3}});
  const data = names.map((name, i) => {
    const at = i ? String(i + 1) : "";
    layout[`xaxis${at}`] = axisOf(name);
    layout[`yaxis${at}`] = limited({yaxis: {title: {text: i % columns ? "" : escaped(view.metric)}}}, rows.map(value)).yaxis;
    const marker = {color, colorscale: [[0, "#a6cee3"], [1, "#1f6fb2"]], size: 6, showscale: i === 0, colorbar: {title: {text: "trial"}, thickness: 12, len: 300, lenmode: "pixels", y: 1, yanchor: "top"}};
    return {...points(rows, row => coordinate(row, name), value, marker, name), xaxis: `x${at}`, yaxis: `y${at}`};
  });
  return {data, layout};
}

function pairFigure() {
  const found = varying(), x = found.includes(view.x) ? view.x : found[0], y = found.includes(view.y) && view.y !== x ? view.y : found.find(name => name !== x);
  const rows = valued(), values = rows.map(value), [low, high] = limits(values) || [Math.min(...values), Math.max(...values)], data = [];
  const layout = {...base(x, y, {showlegend: false}), xaxis: axisOf(x), yaxis: axisOf(y)};
  let marker = {color: values, cmin: low, cmax: high, size: 9, ...scale(), showscale: true};
  if (view.colour === "rank") {
    const order = [...rows].sort((a, b) => sign() * (value(a) - value(b))), place = new Map(order.map((row, i) => [row, i + 1]));
    marker = {color: rows.map(row => place.get(row)), size: 9, colorscale: "RdYlBu", reversescale: true, showscale: true, colorbar: {title: {text: "rank"}}};
  } else if (!isCategory(x) && !isCategory(y) && rows.length > 3) {
    data.push({type: "contour", ...cells(rows, x, y), zmin: low, zmax: high, connectgaps: true, hoverinfo: "skip", ...scale()});
    marker.showscale = false;
  }
  const dots = points(rows, row => coordinate(row, x), row => coordinate(row, y), {...marker, line: {color: "white", width: rows.length < MAX_CURVES ? 1 : 0.2}});
  data.push({...dots, text: values.map(short), hovertemplate: "%{customdata}: %{text}<extra></extra>"});
  return {data, layout};
}

/** Mean of the trials in each cell of a grid; the chart fills empty cells. */
function cells(rows, x, y) {
  const [xs, ys] = [x, y].map(name => {
    const at = isLog(name) ? Math.log10 : v => v, back = isLog(name) ? v => 10 ** v : v => v;
    const all = rows.map(row => name in row.params ? at(row.params[name]) : NaN), known = all.filter(Number.isFinite), low = Math.min(...known), high = Math.max(...known);
    return {places: all.map(v => Math.round((v - low) / (high - low) * (CELLS - 1))), ticks: Array.from({length: CELLS}, (_, i) => back(low + (high - low) * i / (CELLS - 1)))};
  });
  const z = Array.from({length: CELLS}, () => Array(CELLS).fill(null)), counts = z.map(line => line.map(() => 0));
  rows.forEach((row, i) => {
    const [column, line] = [xs.places[i], ys.places[i]];
    if (Number.isNaN(column + line)) return;
    z[line][column] = ((z[line][column] || 0) * counts[line][column] + value(row)) / ++counts[line][column];
  });
  return {x: xs.ticks, y: ys.ticks, z};
}

function distributionFigure() {
  const line = (rows, name, color) => {
    const x = rows.map(value).sort((a, b) => a - b);
    return {type: "scatter", mode: "lines", name, x, y: x.map((_, i) => (i + 1) / x.length), line: {shape: "hv", color}};
  };
  const data = [line(valued(), "all trials", sweep.head.colours.states.running)];
  const chosen = view.selected ? valued().filter(row => view.selected.has(row.id)) : [];
  if (chosen.length) data.push(line(chosen, "selected", sweep.head.colours.best));
  return {data, layout: base(view.metric, "share of trials at or below", {yaxis: {range: [0, 1.02]}, showlegend: chosen.length > 0})};
}

function frontFigure() {
  const names = sweep.head.objectives.map(([name]) => name), x = view.frontX || names[0], y = view.frontY || names.find(name => name !== x);
  const rows = sweep.ranked.filter(row => names.every(name => typeof row.values[name] === "number")), at = name => row => clipped(row.values[name]);
  const data = byState(rows).map(([state, of]) => points(of, at(x), at(y), {color: sweep.head.colours.states[state], size: 7}, state));
  const ring = {color: sweep.head.colours.best, size: 12, symbol: "circle-open", line: {width: 2}};
  data.push({...points(rows.filter(row => row.front), at(x), at(y), ring, "on the front"), unselected: {marker: {opacity: 0.4}}});
  const mode = name => `${name} (${sweep.head.objectives.find(([other]) => other === name)[1]})`;
  return {data, layout: base(mode(x), mode(y))};
}
