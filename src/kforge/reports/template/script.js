"use strict";
// Switches need no script; this sorts and filters the table and opens a problem. Whatever a program, a model or a
// problem's author wrote reaches the page by textContent alone.

const $ = (id) => document.getElementById(id);

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

// -- the table --------------------------------------------------------------------------------------------------------

const table = $("table"), body = table.tBodies[0], rows = [...body.rows];
const texts = rows.map((row) => row.textContent.toLowerCase());
const filters = ["level", "state", "configuration", "platform"].filter((name) => $(`filter-${name}`));

function filter() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = filters.map((name) => [name, $(`filter-${name}`).value]).filter(([, value]) => value !== "");
  let shown = 0;
  rows.forEach((row, index) => {
    const fits = words.every((word) => texts[index].includes(word))
      && wanted.every(([name, value]) => row.dataset[name] === value);
    row.hidden = !fits;
    shown += fits;
  });
  const all = `${rows.length} ${rows.length === 1 ? "row" : "rows"}`;
  $("count").textContent = shown === rows.length ? all : `${shown} of ${all}`;
}

function compare(a, b, column, numeric) {
  const [x, y] = [a, b].map((row) => row.cells[column]);
  if (!numeric) return x.textContent.localeCompare(y.textContent, undefined, { numeric: true });
  return Number(x.dataset.v) - Number(y.dataset.v);
}

function sort(head) {
  const column = head.cellIndex, numeric = head.classList.contains("number");
  const first = numeric ? "descending" : "ascending", other = numeric ? "ascending" : "descending";
  const order = head.getAttribute("aria-sort") === first ? other : first;
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const known = (row) => !numeric || row.cells[column].dataset.v !== undefined;
  const sorted = rows.filter(known).sort((a, b) => compare(a, b, column, numeric) * (order === "ascending" ? 1 : -1));
  body.append(...sorted, ...rows.filter((row) => !known(row)));
}

for (const head of table.tHead.rows[0].cells) {
  const button = make("button", { type: "button" }, head.textContent);
  head.replaceChildren(button);
  button.addEventListener("click", () => sort(head));
}
$("search").addEventListener("input", filter);
for (const name of filters) $(`filter-${name}`).addEventListener("change", filter);
document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
body.addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (row && !event.target.closest("a") && !String(getSelection())) row.querySelector("a").click();
});
document.addEventListener("click", (event) => {
  const dot = event.target.closest("[data-open]");
  if (dot) location.hash = address(dot.getAttribute("data-open"));
});

// -- programs ---------------------------------------------------------------------------------------------------------

/** The lines of an attempt's program: given whole, or as edits of the one it was made from. */
function program(trial, index) {
  const attempt = trial.attempts[index];
  if (attempt.program === null) return null;
  if (attempt.base === null) return attempt.program.split("\n");
  const before = program(trial, attempt.base), after = [];
  let place = 0;
  for (const [first, last, lines] of attempt.program) {
    after.push(...before.slice(place, first), ...lines);
    place = last;
  }
  return after.concat(before.slice(place));
}

/** Lines of a unified difference: [kind, text]. */
function difference(before, edits) {
  const near = 3, found = [];
  let shift = 0, place = 0;
  edits.forEach(([first, last, lines], number) => {
    const start = Math.max(place, first - near);
    if (number === 0 || start > place) found.push(["hunk", `@@ line ${start + 1} → ${start + shift + 1} @@`]);
    for (const line of before.slice(start, first)) found.push(["same", line]);
    for (const line of before.slice(first, last)) found.push(["del", line]);
    for (const line of lines) found.push(["add", line]);
    shift += lines.length - (last - first);
    const next = number + 1 < edits.length ? edits[number + 1][0] : before.length;
    place = Math.min(last + near, next);
    for (const line of before.slice(last, place)) found.push(["same", line]);
  });
  return found;
}

const TOKENS = /(#(?!include|pragma|define|if|endif|else|undef).*|\/\/.*)|("""|''')|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(def|class|return|import|from|for|while|if|elif|else|in|not|and|or|with|as|lambda|None|True|False|void|float|double|int|bool|const|auto|static|inline|template|typename|struct|using|namespace|kernel|device|threadgroup|constexpr|unsigned|__global__|__shared__|__device__|__restrict__)\b/g;

/** Where a text in triple quotes ends in this line; -1 where it goes on in the next. */
function closing(line, quotes, from) {
  for (let place = from; place < line.length; place++) {
    if (line[place] === "\\") place++;
    else if (line.startsWith(quotes, place)) return place + quotes.length;
  }
  return -1;
}

/** The line's parts, and the triple quotes that are open after it; `quotes` are those open before it, or empty. */
function coloured(line, quotes) {
  const parts = [];
  let place = 0;
  const text = (start, from) => {
    const end = closing(line, quotes, from);
    place = end < 0 ? line.length : end;
    if (place > start) parts.push(make("span", { class: "t" }, line.slice(start, place)));
    if (end >= 0) quotes = "";
  };
  if (quotes) text(0, 0);
  while (!quotes && place < line.length) {
    TOKENS.lastIndex = place;
    const found = TOKENS.exec(line), start = found ? found.index : line.length;
    if (start > place) parts.push(line.slice(place, start));
    place = start;
    if (!found) break;
    if (found[2]) {
      quotes = found[2];
      text(start, start + quotes.length);
    } else {
      parts.push(make("span", { class: found[1] ? "c" : found[3] ? "t" : "k" }, found[0]));
      place += found[0].length;
    }
  }
  return [parts, quotes];
}

function listing(lines) {
  let quotes = "";
  return make("pre", { class: "program", tabindex: 0 }, lines.map((line) => {
    const [parts, after] = coloured(line, quotes);
    quotes = after;
    return make("span", { class: "l" }, parts, "\n");
  }));
}

const SIGNS = { add: "+ ", del: "− ", same: "  ", hunk: "" };

function changes(before, edits) {
  return make("pre", { class: "change", tabindex: 0 }, difference(before, edits).map(([kind, line]) =>
    make("span", { class: `l ${kind}` }, SIGNS[kind] + line + "\n")));
}

/** Something that is only made when it is opened. */
function fold(title, content) {
  const element = make("details", { class: "more" }, make("summary", {}, title));
  element.addEventListener("toggle", () => {
    if (element.open && element.children.length === 1) element.append(content());
  });
  return element;
}

// -- one problem ------------------------------------------------------------------------------------------------------

const chip = (outcome) => make("span", { class: `chip ${outcome}` }, outcome.replaceAll("_", " "));
const mark = (text) => make("span", { class: "mark" }, text);
const list = (items) => items.length ? make("ul", { class: "notes" }, items.map((item) => make("li", {}, item))) : null;
const time = (value) => value < 10 ? `${value.toFixed(1)} s` : `${Math.round(value)} s`;

function called(trial, all) {
  const parts = [trial.configuration];
  if (new Set(all.map((other) => other.platform)).size > 1) parts.push(`on ${trial.platform}`);
  if (new Set(all.map((other) => other.seed)).size > 1) parts.push(`seed ${trial.seed}`);
  return parts.join(" ");
}

function figures(heads, rows) {
  return make("div", { class: "scroll" }, make("table", { class: "plain" },
    make("thead", {}, make("tr", {}, heads.map((head, place) => make("th", { scope: "col", class: place ? "number" : null }, head)))),
    make("tbody", {}, rows.map((row) => make("tr", {},
      row.map((cell, place) => make(place ? "td" : "th", place ? { class: "number" } : { scope: "row" }, cell)))))));
}

function verdict(trial) {
  const found = trial.verdict, parts = [];
  const state = trial.state === "finished" ? null : make("p", { class: "warning" }, `${trial.state}${trial.reason ? `: ${trial.reason}` : ""}`);
  if (!found) return [state, make("p", { class: "soft" }, "There is no program yet.")];
  const speedup = found.speedup !== "–" ? make("span", { class: "big" }, `${found.speedup}×`) : null;
  parts.push(state, make("p", { class: "headline" }, speedup, chip(found.outcome), found.emulated ? " " : null, found.emulated ? mark("emulated") : null));
  if (found.detail.trim() === found.headline) parts.push(make("p", { class: "said" }, found.detail));
  else parts.push(make("p", {}, found.headline), fold("All that the judge said", () => make("pre", { class: "said", tabindex: 0 }, found.detail)));
  parts.push(list(found.notes));
  parts.push(make("dl", { class: "facts" }, [...found.facts, ...(trial.run ? [["run", trial.run]] : [])].map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value)))));
  if (found.workloads.length) parts.push(figures(found.workloads[0], found.workloads.slice(1)));
  const norms = ["inputs", "error norm", "allowed", "worst element (1 is the limit)"];
  if (found.errors.length) parts.push(fold(`Error norms of ${found.errors.length} checked calls`, () => figures(norms, found.errors)));
  if (found.unchecked.length) parts.push(fold(`What could not be checked (${found.unchecked.length})`, () => list(found.unchecked)));
  return parts;
}

function attempt(trial, index) {
  const one = trial.attempts[index], best = index === trial.best;
  const spent = Object.entries(one.seconds).map(([name, value]) => `${name} ${time(value)}`);
  const line = make("div", { class: "line" }, make("b", {}, one.step), chip(one.outcome),
    one.rule ? mark(one.rule) : null,
    one.speedup ? make("b", {}, `${one.speedup}×`) : null,
    one.interval ? make("span", { class: "soft" }, one.interval) : null,
    best ? mark("winner") : null,
    make("span", { class: "soft" }, [one.intent + (one.parent ? ` from ${one.parent}` : ""), one.model, ...spent,
      one.tokens ? `${one.tokens} tokens` : "", one.dollars].filter(Boolean).join(" · ")));
  const parts = [line];
  if (one.advice) parts.push(make("p", {}, make("span", { class: "soft" }, "followed: "), one.advice, one.evidence ? make("span", { class: "soft" }, ` (${one.evidence})`) : null));
  if (one.outcome !== "correct") parts.push(make("p", {}, one.headline));
  if (one.outcome !== "correct" && one.detail.trim() !== one.headline) parts.push(fold("All that the judge said", () => make("pre", { class: "said", tabindex: 0 }, one.detail)));
  parts.push(list(one.notes));
  if (one.digest) parts.push(fold("What the profile showed", () => make("pre", { class: "said", tabindex: 0 }, one.digest)));
  if (one.program !== null && one.base !== null) {
    const added = one.program.reduce((sum, edit) => sum + edit[2].length, 0);
    const removed = one.program.reduce((sum, edit) => sum + edit[1] - edit[0], 0);
    parts.push(one.program.length
      ? fold(`Change from ${one.parent}: ${added} lines in, ${removed} out`, () => changes(program(trial, one.base), one.program))
      : make("p", { class: "soft" }, `the same program as ${one.parent}`));
  }
  if (one.program !== null && !best) parts.push(fold("The program", () => listing(program(trial, index))));
  return make("li", { class: best ? "best" : null }, parts);
}

function winner(trial) {
  if (trial.best === null) return [];
  const lines = program(trial, trial.best);
  const copy = make("button", { type: "button", class: "plain copy" }, "Copy");
  const refused = () => { copy.textContent = "The browser does not allow it"; };
  copy.addEventListener("click", () => {
    // A page from a plain http server has no clipboard at all.
    if (!navigator.clipboard) refused();
    else navigator.clipboard.writeText(lines.join("\n")).then(() => { copy.textContent = "Copied"; }, refused);
  });
  return [make("h3", {}, "The best program ", copy), listing(lines)];
}

function panel(trial, all, place, chosen) {
  const tab = all.length > 1 ? { role: "tabpanel", "aria-labelledby": `tab-${place}` } : {};
  return make("div", { class: "panel", ...tab, id: `panel-${place}`, hidden: place !== chosen },
    make("h3", { class: "which" }, called(trial, all)),
    verdict(trial),
    trial.attempts.length ? [make("h3", {}, "Attempts"), make("ol", { class: "timeline" }, trial.attempts.map((_, index) => attempt(trial, index)))] : [],
    winner(trial));
}

function tabs(all, chosen) {
  const buttons = all.map((trial, place) => {
    const found = trial.verdict;
    const worth = !found ? "no program" : found.speedup !== "–" ? `${found.speedup}×` : found.outcome.replaceAll("_", " ");
    return make("button", { type: "button", role: "tab", id: `tab-${place}`, "aria-controls": `panel-${place}`,
      "aria-selected": String(place === chosen), tabindex: place === chosen ? 0 : -1 }, `${called(trial, all)} · ${worth}`);
  });
  const choose = (place) => buttons.forEach((button, other) => {
    button.setAttribute("aria-selected", String(other === place));
    button.tabIndex = other === place ? 0 : -1;
    $(`panel-${other}`).hidden = other !== place;
    if (other === place) button.focus();
  });
  buttons.forEach((button, place) => {
    button.addEventListener("click", () => choose(place));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) choose((place + step + buttons.length) % buttons.length);
    });
  });
  return make("div", { class: "tabs", role: "tablist", "aria-label": "Configurations" }, buttons);
}

// -- opening and closing ----------------------------------------------------------------------------------------------

const pieces = new Map([...document.querySelectorAll("script[data-problem]")].map((piece) => [piece.dataset.problem, piece]));
const title = document.title;
let before = null;   // what had the focus

const address = (problem, at) => `problem=${encodeURIComponent(problem).replaceAll("%2F", "/")}${at ? `&at=${at}` : ""}`;

async function unpacked(problem) {
  const bytes = Uint8Array.from(atob(pieces.get(problem).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** The problem before and after this one, in the table as it is sorted and filtered. */
function neighbours(problem) {
  const order = [...new Set([...body.rows].filter((row) => !row.hidden).map((row) => asked(row.querySelector("a").hash).problem))];
  const place = order.indexOf(problem);
  return place < 0 ? [null, null] : [order[place - 1] || null, order[place + 1] || null];
}

function step(text, problem) {
  const button = make("button", { type: "button", class: "plain", disabled: !problem }, text);
  button.addEventListener("click", () => location.replace(`#${address(problem)}`));
  return button;
}

function asked(hash) {
  const found = new URLSearchParams(hash.slice(1).replaceAll("+", "%2B"));
  return { problem: found.get("problem"), at: Number(found.get("at") || 0) };
}

async function open(problem, at) {
  const detail = $("detail"), found = await unpacked(problem);
  if (asked(location.hash).problem !== problem) return;
  const chosen = Math.min(Math.max(at, 0), found.trials.length - 1), [earlier, later] = neighbours(problem);
  const close = make("button", { type: "button", class: "plain", id: "close" }, "Close");
  close.addEventListener("click", shut);
  detail.replaceChildren(make("div", { class: "inner" },
    make("div", { class: "bar-top" },
      make("h2", { id: "detail-title", tabindex: -1 }, problem, found.level === null ? "" : make("span", { class: "soft" }, ` level ${found.level}`)),
      step("Previous", earlier), step("Next", later), close),
    found.trials.length > 1 ? tabs(found.trials, chosen) : null,
    found.trials.map((trial, place) => panel(trial, found.trials, place, chosen)),
    found.source ? [make("h3", {}, "The problem"), listing(found.source.split("\n"))] : []));
  if (detail.hidden) before = document.activeElement;
  detail.hidden = false;
  detail.scrollTop = 0;
  document.body.classList.add("opened");
  $("report").inert = true;
  document.title = `${problem} · ${title}`;
  $("detail-title").focus();
}

function hide() {
  const detail = $("detail");
  if (detail.hidden) return;
  detail.hidden = true;
  detail.replaceChildren();
  document.body.classList.remove("opened");
  $("report").inert = false;
  document.title = title;
  if (before && before.isConnected) before.focus({ preventScroll: true });
}

function shut() {
  history.replaceState(null, "", "#problems");
  hide();
}

function follow() {
  const { problem, at } = asked(location.hash);
  const known = pieces.has(problem), missing = $("missing");
  missing.hidden = problem === null || known;
  missing.textContent = missing.hidden ? "" : `No problem in this report is called “${problem}”. The table of problems lists all that are in it.`;
  if (known) open(problem, at);
  else hide();
  if (!missing.hidden) missing.scrollIntoView({ block: "center" });
}

addEventListener("hashchange", follow);
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("detail").hidden) shut();
});
addEventListener("beforeprint", () => document.querySelectorAll("details.fold").forEach((fold) => { fold.open = true; }));
document.documentElement.classList.add("scripted");
filter();
follow();
