// Shows the messages of the server as they come, and sends what a person asks for.
"use strict";

/** Ask the server for a change; its answer in words. */
async function ask(action, asked) {
  try {
    const answer = await fetch(`/do/${action}/${told("sweep")}`, {
      method: "POST",
      headers: {"X-Tune-Token": told("token"), "Content-Type": "application/json"},
      body: JSON.stringify(asked),
    });
    const text = await answer.text();
    return text.startsWith("{") ? JSON.parse(text).said : text;
  } catch (error) {
    return `the server does not answer (${error.message})`;
  }
}

function submitted(form, said) {
  form.onsubmit = async event => {
    event.preventDefault();
    if (form.dataset.ask && !confirm(form.dataset.ask)) return;
    const asked = Object.fromEntries(new FormData(form));
    said.textContent = "…";
    said.textContent = await ask(form.dataset.do, asked);
  };
  return form;
}
for (const form of document.querySelectorAll("form[data-do]")) submitted(form, get("said"));

const showHead = HANDLERS.head;
HANDLERS.head = head => {
  if (sweep.head && sweep.head.driver !== head.driver) get("said").textContent = "";  // said of the other state
  showHead(head);
  get("progress").hidden = !head.budget || head.finished;
  if (head.budget) Object.assign(get("progress"), {max: head.budget, value: head.done});
  get("control").hidden = Boolean(head.readOnly);
  const show = (name, isThere) => document.querySelectorAll(name).forEach(button => { button.form.hidden = !isThere; });
  show(".needs-driver", head.driver);
  show(".needs-unfinished", head.driver || !head.finished);
  show(".needs-none", !head.driver);
  if (head.parameters.length) document.querySelector("[name=values]").placeholder = `${head.parameters[0]}=… `;
};
HANDLERS.problem = text => {
  get("problem").textContent = text;
  get("problem").hidden = !text;
};

let log = null;
window.followLog = (row, target) => {
  if (log) log.close();
  log = new EventSource(`/logs/${encodeURIComponent(row.id)}/${told("sweep")}`);
  log.onopen = () => target.textContent = "";
  log.onmessage = event => {
    if (!target.isConnected && get("detail").hidden) return log.close();
    const atEnd = target.scrollTop + target.clientHeight > target.scrollHeight - 40;
    const all = target.textContent + JSON.parse(event.data).map(line => `${line}\n`).join("");
    target.textContent = all.slice(-200000);
    if (atEnd) target.scrollTop = target.scrollHeight;
  };
};

window.noteForm = row => {
  const said = make("span", {role: "status"});
  const form = make("form", {className: "notes"},
    make("textarea", {name: "text", value: row.note, label: "note", placeholder: "note", rows: 1}),
    make("input", {name: "tags", value: row.tags.join(", "), label: "tags, with commas", placeholder: "tags, with commas"}),
    make("input", {type: "hidden", name: "trial", value: row.id}),
    make("button", {textContent: "Save note"}), said);
  form.dataset.do = "note";
  if (!["running", "pending"].includes(row.state)) return submitted(form, said);
  const stop = make("form", {}, make("input", {type: "hidden", name: "trial", value: row.id}), make("button", {textContent: "Stop trial"}));
  Object.assign(stop.dataset, {do: "stop", ask: "Stop this trial at its next report?"});
  return make("div", {}, submitted(form, said), submitted(stop, said));
};

if (told("sweep")) {
  const events = new EventSource(`/events/${told("sweep")}`);
  for (const kind of ["head", "section", "trials", "problem"])
    events.addEventListener(kind, event => receive(kind, JSON.parse(event.data)));
  events.onerror = () => {
    get("state").textContent = "the server does not answer; the page continues when it does";
    get("state").className = "lost";
  };
}
