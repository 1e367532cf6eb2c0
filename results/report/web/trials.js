// The table of trials, the page of a trial, and the difference of trials.
"use strict";

let trialTable = null;
const only = make("input", {type: "checkbox"});
only.onchange = () => trialTable.fill();

function showTrials() {
  const part = sectionFor("trials", 80, "Trials", true);
  trialTable ||= new Table(part.appendChild(make("div")), {
    name: "Trials", key: "trials", extra: [make("label", {}, only, " only the selected")],
    rowClass: row => view.selected && view.selected.has(row.id) ? "chosen" : row.id === sweep.head.winnerTrial ? "best" : "",
    onRow: row => toggle(row.id, "table"), keep: row => !only.checked || !view.selected || view.selected.has(row.id),
  });
  trialTable.show(trialColumns(), sweep.ranked);
}

function trialColumns() {
  const objectives = sweep.head.objectives.map(([name]) => name), rows = sweep.ranked;
  const has = key => rows.some(row => row[key] && row[key].length !== 0);
  const box = row => {
    const made = make("input", {type: "checkbox", checked: Boolean(view.selected && view.selected.has(row.id)), label: `select ${row.id}`});
    made.dataset.focus = `box-${row.id}`;
    made.onchange = () => toggle(row.id, "table");
    return make("span", {}, made, " ", link(row.id));
  };
  const metric = (name, hide) => ({title: name, hide, value: row => row.values[name], text: row => short(row.values[name])});
  return [
    {title: "trial", key: "id", cell: box},
    {title: "state", key: "state", cell: row => make("span", {className: "dot", textContent: row.state, style: `--dot:${sweep.head.colours.states[row.state]}`})},
    ...objectives.map(name => metric(name, false)),
    ...has("mean") ? [{title: "mean ± 95 %", key: "mean"}] : [],
    {title: "step", key: "step"},
    {title: "seconds", key: "seconds"},
    ...sweep.head.currency ? [{title: sweep.head.currency, key: "cost"}] : [],
    ...sweep.head.parameters.map(name => ({title: name, value: row => row.params[name], text: row => short(row.params[name])})),
    ...has("tags") ? [{title: "tags", value: row => row.tags.join(", "), text: row => row.tags.join(", ")}] : [],
    ...has("note") ? [{title: "note", key: "note"}] : [],
    {title: "why it ended", key: "reason"},
    ...metrics().filter(name => !objectives.includes(name)).map(name => metric(name, true)),
    {title: "number", key: "number", hide: true},
  ];
}

const link = (id, text = id) => { const made = make("a", {href: `#trial/${id}`, textContent: text}); made.dataset.focus = `link-${id}`; return made; };

HANDLERS.head = head => {
  sweep.head = head;
  view.metric ||= head.objectives[0][0];
  document.title = `${head.live ? `${head.done}${head.budget ? `/${head.budget}` : ""} ` : ""}${head.title}`;
  paragraphs(get("lead"), head.lead, "lead");
  paragraphs(get("winner"), head.winner);
  get("winner").hidden = !head.winner.length;
  get("state").textContent = head.state;
  get("state").className = head.driver ? "runs" : head.finished ? "finished" : "";
  if (!get("about").contains(document.activeElement))
    get("about").replaceChildren(notes({id: "", state: "", note: head.note, tags: head.tags}) || "");
  note("head");
  if (sweep.trials.size) showAll();
};
HANDLERS.trials = rows => {
  for (const row of rows) sweep.trials.set(row.id, row);
  sweep.ranked = [...sweep.trials.values()].sort((a, b) => a.rank - b.rank);
  if (sweep.head) showAll();
};
const showAll = later(() => { showBar(); note("table"); redrawCharts(); if (!get("detail").hidden) route(); }, 30);

// ---- one trial

/** Configuration, attempts, usage and logs: of the server, or of the page itself; null if it has none. */
async function details(id) {
  if (told("sweep")) {
    const answer = await fetch(`/trials/${encodeURIComponent(id)}/${told("sweep")}`);
    return answer.ok ? answer.json() : null;
  }
  details.all ||= JSON.parse((document.querySelector("script[data-kind=details]") || {textContent: "{}"}).textContent);
  return details.all[id] || null;
}

const titled = (title, ...children) => make("section", {}, make("h2", {textContent: title}), ...children);
function plain(header, rows, caption) {
  const cell = text => text instanceof Node ? make("td", {}, text) : make("td", {textContent: text, className: String(text).length > 24 ? "long" : ""});
  return make("div", {className: "rows", tabIndex: 0, role: "region", label: caption}, make("table", {},
    make("thead", {}, make("tr", {}, ...header.map(textContent => make("th", {scope: "col", textContent})))),
    make("tbody", {}, ...rows.map(row => make("tr", {}, ...row.map(cell))))));
}

/** All curves of some trials, a chart for each metric. */
function curveCharts(rows) {
  const names = metrics().filter(name => rows.some(row => row.curves[name]));
  return names.map(name => {
    const plot = make("div", {className: "plot", style: "height:260px"});
    draw(plot, () => ({
      data: rows.filter(row => row.curves[name]).map(row => ({type: "scatter", mode: row.steps.length < 30 ? "lines+markers" : "lines", name: row.id, x: row.steps, y: row.curves[name], marker: {size: 4}})),
      layout: base("step", name, {height: 260, xaxis: whole(rows.map(row => row.step)), showlegend: rows.length > 1}),
    }));
    return make("div", {className: "cell"}, plot);
  });
}

function usageCharts(usage) {
  return Object.entries(usage).map(([name, ranks]) => {
    const plot = make("div", {className: "plot", style: "height:220px"});
    const data = Object.entries(ranks).map(([rank, [x, y]]) => ({type: "scatter", mode: "lines+markers", marker: {size: 3}, name: `rank ${rank}`, x, y}));
    draw(plot, () => ({data, layout: base("seconds since its start", name, {height: 220, showlegend: data.length > 1})}));
    return make("div", {className: "cell"}, plot);
  });
}

let shownTrial = "";
VIEWS.trial = async (target, id) => {
  const row = sweep.trials.get(id), again = shownTrial === `trial/${id}`;
  if (!sweep.head || (again && target.contains(document.activeElement) && document.activeElement.closest("form"))) return;
  if (!row) return target.replaceChildren(make("p", {textContent: `There is no trial ${id}.`}), make("p", {}, make("a", {href: "#", textContent: "all trials"})));
  shownTrial = `trial/${id}`;
  const at = sweep.ranked.indexOf(row), found = await details(id);
  if (location.hash.slice(1) !== `trial/${id}`) return;
  const near = (step, text) => sweep.ranked[at + step] ? link(sweep.ranked[at + step].id, text) : null;
  const values = Object.entries(row.values).filter(([, v]) => v !== null).map(([name, v]) => `${name} ${short(v)}`).join(", ");
  const parts = [
    make("p", {className: "tools"}, make("a", {href: "#", textContent: "← all trials"}), near(-1, "↑ better"), near(1, "↓ worse"),
      id !== sweep.head.winnerTrial && sweep.head.winnerTrial ? make("a", {href: `#compare/${sweep.head.winnerTrial},${id}`, textContent: "compare with the winner"}) : null),
    make("h2", {textContent: id}),
    make("p", {}, make("span", {className: "dot", textContent: row.state, style: `--dot:${sweep.head.colours.states[row.state]}`}), row.reason ? `: ${row.reason}` : ""),
    make("p", {textContent: `${values ? `Place ${row.rank + 1} of ${sweep.ranked.length}. At step ${row.step}: ${values}.` : "No value yet."} It ${row.state === "running" ? "has run" : "took"} ${short(row.seconds)} s.`}),
    notes(row),
    titled("Curves", make("div", {className: "cells"}, ...curveCharts([row]))),
  ];
  if (found) parts.push(...detailParts(found, row));
  else parts.push(make("p", {textContent: `This page has no more about ${id}: tune show ${sweep.head.title} ${id}`}));
  parts.push(titled("Log", logOf(row, found)));
  const top = scrollY;
  target.replaceChildren(...parts.filter(Boolean));
  if (again) scrollTo(0, top);
  note("trial");
};

function detailParts(found, row) {
  const config = Object.entries({...row.params, ...found.config}).map(([name, v]) => [name, short(v), name in row.params ? "searched" : found.adjusted.includes(name) ? "adjusted" : "fixed"]);
  const parts = [titled("Configuration", plain(["name", "value", "origin"], config, "configuration"))];
  if (Object.keys(found.usage).length) parts.push(titled("Processor, GPU and memory", make("div", {className: "cells"}, ...usageCharts(found.usage))));
  parts.push(titled("Attempts", plain(["attempt", "started", "seconds", "workers", "how it ended"], found.attempts, "attempts")));
  parts.push(titled("Checkpoints", make("p", {textContent: found.checkpoints || "no checkpoints"})));
  if (found.lineage.length) parts.push(titled("Lineage", plain(["at step", "weights of", "changed"], found.lineage.map(([step, donor, donorStep, changed]) => [step, make("span", {}, link(donor), ` at step ${donorStep}`), changed]), "lineage")));
  return parts;
}

function logOf(row, found) {
  const log = make("pre", {className: "log", tabIndex: 0, label: `log of ${row.id}`});
  if (window.followLog && told("sweep")) followLog(row, log);
  else log.textContent = found && found.log ? found.log.join("\n") || "It printed nothing." : `not in this page: tune logs ${sweep.head.title} ${row.id}`;
  return log;
}

/** The note and tags of a trial; the live page has a form for them. */
function notes(row) {
  if (window.noteForm && told("sweep") && !sweep.head.readOnly) return noteForm(row);
  const tags = row.tags.map(textContent => make("span", {className: "tag", textContent}));
  return row.note || tags.length ? make("p", {className: "note"}, ...tags, " ", row.note) : null;
}

// ---- the difference of trials

VIEWS.compare = async (target, ids) => {
  const rows = ids.split(",").map(id => sweep.trials.get(id)).filter(Boolean);
  if (!sweep.head) return;
  if (rows.length < 2) return target.replaceChildren(make("p", {textContent: `No two trials to compare: ${ids}`}), make("p", {}, make("a", {href: "#", textContent: "all trials"})));
  if (shownTrial === ids && target.children.length) return;
  shownTrial = ids;
  const found = await Promise.all(rows.map(row => details(row.id))), configs = rows.map((row, i) => ({...row.params, ...(found[i] || {}).config}));
  const names = [...new Set(configs.flatMap(Object.keys))], differ = names.filter(name => new Set(configs.map(one => JSON.stringify(one[name]))).size > 1);
  const line = (name, of) => [name, ...rows.map((row, i) => of(row, i))];
  const values = metrics().filter(name => rows.some(row => name in row.values)).map(name => line(name, row => short(row.values[name])));
  const same = names.length - differ.length;
  target.replaceChildren(
    make("p", {}, make("a", {href: "#", textContent: "← all trials"})),
    make("h2", {textContent: rows.map(row => row.id).join(" and ")}),
    titled("Results", plain(["", ...rows.map(row => row.id)], [
      line("", row => link(row.id, "open")), line("state", row => row.state), line("step", row => short(row.step)), line("seconds", row => short(row.seconds)), ...values, line("why it ended", row => row.reason)], "results")),
    titled("Configuration", differ.length ? plain(["differs", ...rows.map(row => row.id)], differ.map(name => line(name, (_, i) => short(configs[i][name]))), "configuration") : null,
      make("p", {textContent: `${same} other value${same === 1 ? " is" : "s are"} the same.`})),
    titled("Curves", make("div", {className: "cells"}, ...curveCharts(rows))));
  note("compare");
};
