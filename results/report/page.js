// Draws the plots of a page, and lets its tables be sorted and filtered.
"use strict";

const waiting = new Map();
/** Without a mouse a finger scrolls the page, and the buttons of a plot would cover its legend. */
const touched = matchMedia("(hover: none)");

/** Draw a figure in an element, after those that wait: the page stays responsive. */
function drawIn(element, figure) {
  element.figure = figure;
  if (!waiting.size) setTimeout(drawNext);
  waiting.set(element, figure);
}

function drawNext() {
  // parallel coordinates last: without a GPU they take longer than all others
  const all = [...waiting], quick = ([, one]) => (one.data[0] || {}).type !== "parcoords";
  const [element, figure] = all.find(quick) || all[0];
  try {
    drawNow(element, figure);
  } catch (error) {  // parallel coordinates without WebGL; the others are drawn
    element.textContent = `this plot cannot be drawn here: ${error.message}`;
  }
  waiting.delete(element);
  if (waiting.size) setTimeout(drawNext);
  else document.dispatchEvent(new Event("drawn"));
}

function drawNow(element, figure) {
  const least = figure.layout.meta && figure.layout.meta.min_width;
  if (least) element.style.minWidth = `${least}px`;
  if (figure.layout.height) element.style.height = `${figure.layout.height}px`;
  const config = {
    displaylogo: false, responsive: true, displayModeBar: touched.matches ? false : "hover",
    showSendToCloud: false, plotlyServerURL: "",  // the button uploads the data of the plot
  };
  Plotly.react(element, figure.data, themed(figure.layout), config);
}

/** The layout in the colours of the page; a zoom outlasts new data. */
function themed(layout) {
  const style = getComputedStyle(document.documentElement);
  const [ink, line] = ["--ink", "--line"].map(name => style.getPropertyValue(name).trim());
  const found = {...layout, uirevision: "same", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)"};
  found.font = {...layout.font, color: ink};
  found.modebar = {bgcolor: "rgba(0,0,0,0)", color: line, activecolor: ink};
  if (touched.matches) found.dragmode = false;
  for (const axis of ["xaxis", "yaxis"])
    found[axis] = {...layout[axis], gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true};
  return found;
}

/** Sort by a click on a column's name; filter by words, which the row must all contain. */
function enhance(table, state = {column: -1, down: false, words: ""}) {
  const body = table.tBodies[0];
  const cells = (row, column) => row.cells[column].textContent;
  const compare = (a, b) => {
    const [x, y] = [Number(a || NaN), Number(b || NaN)];
    if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    return Number.isNaN(x) - Number.isNaN(y) || a.localeCompare(b);
  };
  const show = () => {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
    }
  };
  const sort = () => {
    if (state.column < 0) return;
    const rows = [...body.rows].map(row => [cells(row, state.column), row]);
    rows.sort(([a], [b]) => (state.down ? -1 : 1) * compare(a, b));
    body.append(...rows.map(([, row]) => row));
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.ariaSort = column !== state.column ? null : state.down ? "descending" : "ascending";
      head.firstChild.textContent = head.dataset.name + (column !== state.column ? "" : state.down ? " ↓" : " ↑");
    });
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.dataset.name = head.textContent;
    const button = document.createElement("button");
    button.textContent = head.textContent;
    button.onclick = () => {
      state.down = state.column === column && !state.down;
      state.column = column;
      sort();
    };
    head.replaceChildren(button);
  });
  if (body.rows.length > 8 && !state.input) {
    state.input = Object.assign(document.createElement("input"), {className: "filter", type: "search", placeholder: "filter rows"});
    state.input.setAttribute("aria-label", "filter rows");
    state.input.oninput = () => { state.words = state.input.value; state.show(); };
    table.closest(".rows").before(state.input);
  }
  state.show = show;
  sort();
  show();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const element of document.querySelectorAll(".plot")) if (element.figure) drawIn(element, element.figure);
});
document.addEventListener("DOMContentLoaded", () => {
  for (const data of document.querySelectorAll(".plot > script")) {
    const element = data.parentElement, figure = JSON.parse(data.textContent);
    data.remove();
    drawIn(element, figure);
  }
  for (const table of document.querySelectorAll(".rows > table")) enhance(table);
});
