// A table with many rows: sorted, filtered, with hidden and pinned columns, as CSV.
"use strict";

const ROW = 29, AT_ONCE = 60;

class Table {
  /**
   * @param target element that it fills.
   * @param given.name for a screen reader; `key` under which the choice of columns is kept;
   *   `rowClass(row)`; `onRow(row, event)` for a click; `extra` elements beside the filter.
   */
  constructor(target, given) {
    Object.assign(this, {onRow: null, rowClass: () => "", extra: [], keep: () => true}, given);
    this.stored = `tune:${document.title}:${this.key}`;
    this.choice = {hidden: null, pinned: [], column: null, down: false, ...this.load()};
    this.words = "";
    this.filter = make("input", {type: "search", className: "filter", placeholder: "filter: words, accuracy>0.9", label: `filter ${this.name}`});
    this.filter.oninput = () => { this.words = this.filter.value; this.fill(); };
    this.count = make("span", {className: "dim", role: "status"});
    this.menu = make("details", {className: "columns"}, make("summary", {textContent: "Columns"}));
    this.csv = make("button", {type: "button", textContent: "CSV", title: "save the rows and columns shown"});
    this.csv.onclick = () => this.save();
    this.tools = make("div", {className: "tools"}, this.filter, ...this.extra, this.menu, this.csv, this.count);
    this.scroll = make("div", {className: "rows", tabIndex: 0, role: "region", label: this.name});
    this.scroll.onscroll = () => requestAnimationFrame(() => this.window());
    this.table = make("table", {}, make("thead"), make("tbody"));
    this.scroll.append(this.table);
    target.replaceChildren(this.tools, this.scroll);
  }

  /** Columns are `{key, title, hide, value(row), text(row), cell(row)}`; of a row that is a list, `key` is a place. */
  show(columns, rows) {
    const same = this.columns && this.columns.map(one => one.title).join("\n") === columns.map(one => one.title).join("\n");
    this.columns = columns.map(one => ({
      value: row => row[one.key],
      text: row => { const cell = row[one.key]; return cell && cell.text !== undefined ? cell.text : short(cell); },
      ...one,
    }));
    this.rows = rows;
    this.tools.hidden = rows.length <= 8 && !this.extra.length;
    if (!same) { this.listColumns(); this.head(); }
    this.fill();
  }

  get shown() {
    const hidden = this.choice.hidden || this.columns.filter(one => one.hide).map(one => one.title);
    const pinned = one => this.choice.pinned.includes(one.title);
    const kept = this.columns.filter(one => !hidden.includes(one.title));
    return [...kept.filter(pinned), ...kept.filter(one => !pinned(one))];
  }

  listColumns() {
    const list = make("div", {className: "menu"});
    for (const one of this.columns) {
      const box = make("input", {type: "checkbox", checked: this.shown.includes(one)});
      const pin = make("button", {type: "button", textContent: "pin", label: `pin ${one.title}`});
      pin.ariaPressed = String(this.choice.pinned.includes(one.title));
      box.onchange = () => {
        const hidden = new Set(this.columns.filter(other => !this.shown.includes(other)).map(other => other.title));
        if (box.checked) hidden.delete(one.title); else hidden.add(one.title);
        this.choose({hidden: [...hidden]});
      };
      pin.onclick = () => {
        const on = this.choice.pinned.includes(one.title);
        const others = this.choice.pinned.filter(title => title !== one.title);
        this.choose({pinned: on ? others : [...others, one.title]});
        pin.ariaPressed = String(!on);
      };
      list.append(make("div", {}, make("label", {}, box, one.title), pin));
    }
    this.menu.replaceChildren(this.menu.firstChild, list);
  }

  choose(change) {
    Object.assign(this.choice, change);
    try { localStorage.setItem(this.stored, JSON.stringify(this.choice)); } catch { /* a page without storage */ }
    this.head();
    this.fill();
  }

  load() {
    try { return JSON.parse(localStorage.getItem(this.stored)) || {}; } catch { return {}; }
  }

  head() {
    const {column, down} = this.choice;
    const cells = this.shown.map(one => {
      const chosen = one.title === column, button = make("button", {type: "button", textContent: one.title + (chosen ? down ? " ↓" : " ↑" : "")});
      button.onclick = () => this.choose({column: one.title, down: chosen && !down});
      const cell = make("th", {scope: "col"}, button);
      if (chosen) cell.ariaSort = down ? "descending" : "ascending";
      return cell;
    });
    const focused = [...this.table.tHead.querySelectorAll("button")].indexOf(document.activeElement);
    this.table.tHead.replaceChildren(make("tr", {}, ...cells));
    if (focused >= 0) (this.table.tHead.querySelectorAll("button")[focused] || {focus() {}}).focus();
  }

  /** Apply filter and order; the rows in the window are drawn. */
  fill() {
    const tests = this.words.toLowerCase().split(/\s+/).filter(Boolean).map(word => this.test(word));
    this.found = this.rows.filter(row => this.keep(row) && tests.every(test => test(row)));
    const column = this.columns.find(one => one.title === this.choice.column);
    if (column) {
      const sign = this.choice.down ? -1 : 1;
      this.found = this.found.map(row => [column.value(row), row]).sort(([a], [b]) => compare(a, b, sign)).map(([, row]) => row);
    }
    const few = this.found.length < this.rows.length ? `${this.found.length} of ` : "";
    this.count.textContent = `${few}${this.rows.length} rows`;
    this.window();
  }

  /** A word of the filter: `name>value`, `name<value`, `name=value`, or a part of the row's text. */
  test(word) {
    const [, name, sign, value] = word.match(/^(.+?)(>=|<=|>|<|=)(.+)$/) || [];
    const column = name && this.columns.find(one => one.title.toLowerCase() === name);
    if (!column) return row => this.columns.some(one => one.text(row).toLowerCase().includes(word));
    if (sign === "=") return row => column.text(row).toLowerCase() === value;
    const than = Number(value), up = sign[0] === ">", equal = sign.length > 1;
    return row => {
      const own = column.value(row);
      return typeof own === "number" && ((up ? own > than : own < than) || (equal && own === than));
    };
  }

  window() {
    const fits = this.found.length <= 2 * AT_ONCE;
    const first = fits ? 0 : Math.max(0, Math.min(Math.floor(this.scroll.scrollTop / ROW) - 20, this.found.length - AT_ONCE));
    const rows = this.found.slice(first, fits ? undefined : first + AT_ONCE), shown = this.shown;
    const space = count => count > 0 ? [make("tr", {className: "space"}, make("td", {colSpan: shown.length, style: `height:${count * ROW}px`}))] : [];
    const focused = document.activeElement && this.table.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    this.table.tBodies[0].replaceChildren(
      ...space(first), ...rows.map(row => this.row(row, shown)), ...space(this.found.length - first - rows.length));
    this.table.ariaRowCount = this.found.length + 1;
    this.pin(shown);
    if (focused) (this.table.querySelector(`[data-focus="${CSS.escape(focused)}"]`) || {focus() {}}).focus({preventScroll: true});
  }

  row(row, shown) {
    const cells = shown.map(one => {
      const text = one.text(row), cell = make("td", {className: text.length > 24 ? "long" : "", title: text.length > 24 ? text : ""});
      const made = one.cell ? one.cell(row) : linked(one.value(row));
      cell.append(made === null ? text : made);
      return cell;
    });
    const element = make("tr", {className: this.rowClass(row)}, ...cells);
    if (this.onRow) element.onclick = event => { if (!event.target.closest("a, button, input")) this.onRow(row, event); };
    return element;
  }

  /** Pinned columns stay at the left side, one beside the other. */
  pin(shown) {
    const count = shown.filter(one => this.choice.pinned.includes(one.title)).length;
    const heads = this.table.tHead.rows[0].cells, lefts = [0];
    for (let at = 0; at < count; at++) lefts.push(lefts[at] + heads[at].offsetWidth);
    for (const row of count ? [this.table.tHead.rows[0], ...this.table.tBodies[0].rows] : [])
      for (let at = 0; at < Math.min(count, row.cells.length); at++) {
        row.cells[at].classList.add("pinned");
        row.cells[at].style.left = `${lefts[at]}px`;
      }
  }

  save() {
    const quoted = text => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    const full = (one, row) => typeof one.value(row) === "number" ? String(one.value(row)) : one.text(row);
    const lines = [this.shown.map(one => one.title), ...this.found.map(row => this.shown.map(one => full(one, row)))];
    const text = lines.map(line => line.map(quoted).join(",") + "\n").join("");
    const link = make("a", {href: URL.createObjectURL(new Blob([text], {type: "text/csv"})), download: `${this.key}.csv`});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href));
  }
}

/** Numbers before texts, missing values last. */
function compare(a, b, sign) {
  const plain = v => v && typeof v === "object" && "text" in v ? v.text : v;
  [a, b] = [plain(a), plain(b)];
  const number = v => typeof v === "number" ? v : v === "" || v === null || v === undefined ? NaN : Number(v);
  const [x, y] = [number(a), number(b)];
  if (!Number.isNaN(x) && !Number.isNaN(y)) return sign * (x - y);
  if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
  return sign * String(a ?? "").localeCompare(String(b ?? ""));
}

/** A cell that is more than text: `{text, href, spark}`. */
function linked(cell) {
  if (!cell || typeof cell !== "object") return null;
  if (cell.href) return make("a", {href: cell.href, textContent: cell.text});
  return cell.spark ? sparkline(cell.spark) : null;
}

function sparkline(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const at = (v, i) => `${(98 * i / Math.max(1, values.length - 1) + 1).toFixed(1)},${(high > low ? 18 - 16 * (v - low) / (high - low) : 10).toFixed(1)}`;
  const drawn = make("span", {innerHTML: "<svg class='spark' role='img' viewBox='0 0 100 20'><polyline fill='none' stroke='currentColor' stroke-width='1.5'></polyline></svg>"});
  drawn.firstChild.setAttribute("aria-label", `best value so far: ${short(values[0])} to ${short(values.at(-1))}`);
  drawn.querySelector("polyline").setAttribute("points", values.map(at).join(" "));
  return drawn;
}
