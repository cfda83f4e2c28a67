"use strict";
/* Works a report page of two systems at two rates, three seeds each, as its reader would. `expected` is
 * what `unmask plot -x rate -y latency_s.p99 --by system --json` printed of the same runs. */
const failures = [];
let checks = 0;

function check(holds, what) {
  checks++;
  if (!holds) failures.push(what);
}

const same = (a, b, what) => check(a === b, `${what}: ${a} instead of ${b}`);
const near = (a, b, what) => check(Math.abs(a - b) <= 1e-4 * Math.abs(b), `${what}: ${a} instead of ${b}`);
const bodyRows = id => [...document.querySelectorAll(`#${id} tbody tr`)];
const headings = id => [...document.querySelectorAll(`#${id} th button`)];
const column = (id, heading) => headings(id).findIndex(b => b.textContent === heading);
const cells = (id, heading) => bodyRows(id).map(row => row.children[column(id, heading)].textContent);
const isSorted = (values, down) => values.every((v, i) => i === 0 || (down ? values[i - 1] >= v : values[i - 1] <= v));

function set(id, value) {
  const element = document.getElementById(id);
  if (element.type === "checkbox") element.checked = value; else element.value = value;
  element.dispatchEvent(new Event(element.type === "search" ? "input" : "change"));
}

const lines = id => [...document.querySelectorAll(`#${id} g[data-line]`)];
const circles = id => [...document.querySelectorAll(`#${id} circle title`)].map(t => t.textContent);

function testTable() {
  same(bodyRows("runs").length, 12, "rows");
  const heading = "p99 latency (s)";
  headings("runs")[column("runs", heading)].click();
  check(isSorted(cells("runs", heading).map(Number), false), "a click on a heading sorts");
  same(document.activeElement.textContent, heading, "the focus stays on the heading");
  same(document.activeElement.parentElement.getAttribute("aria-sort"), "ascending", "aria-sort");
  document.activeElement.click();
  check(isSorted(cells("runs", heading).map(Number), true), "a second click sorts downwards");
  same(document.querySelectorAll("[aria-sort=descending]").length > 0, true, "aria-sort down");
  headings("runs")[column("runs", "run")].click();
  check(document.getElementById("warnings").textContent.includes("12 of 12 runs"), "warnings are counted");
  set("column", "makespan_s");
  check(column("runs", "makespan (s)") >= 0, "one column more");
  set("column", "");
}

function testFilters() {
  set("f-system", "dllm-serve");
  same(bodyRows("runs").length, 6, "runs of a system");
  same(lines("plot").length, 1, "lines of one system");
  check(document.getElementById("count").textContent.startsWith("6 of 12"), "the count");
  set("f-rate", "0.4");
  same(bodyRows("runs").length, 3, "runs of a system at a rate");
  set("f-rate", "");
  set("f-system", "");
  set("filter", "SPARSE");
  same(bodyRows("runs").length, 6, "runs with a word");
  set("filter", "nothing has this");
  same(bodyRows("runs").length, 0, "runs with no such word");
  check(document.getElementById("plot").textContent === "", "no runs, no plot");
  set("filter", "");
  same(bodyRows("runs").length, 12, "all runs again");
}

/* Means and intervals are those of `unmask plot`. */
function testPlot() {
  same(lines("plot").length, 2, "a line for each system");
  same(circles("plot").length, expected.length, "points");
  same(document.querySelectorAll("#plot .interval").length, expected.length, "intervals");
  circles("plot").forEach((text, i) => {
    const [, y, low, high] = text.match(/: ([\d.]+) \(([\d.]+) to ([\d.]+)\)$/).map(Number);
    near(y, expected[i].y, "a mean");
    near(low, expected[i].low, "an interval's lower end");
    near(high, expected[i].high, "an interval's upper end");
  });
  check(document.getElementById("plot").textContent.includes("p99 latency (s)"), "the y axis has its unit");
  check(document.getElementById("plot").textContent.includes("rate (requests/s)"), "the x axis has its unit");
  set("y", "throughput_tok_s");
  check(document.getElementById("plot").textContent.includes("throughput (tokens/s)"), "another y");
  set("facet", "rate");
  same(document.querySelectorAll("#plot svg").length, 2, "a panel for each rate");
  set("facet", "");
  set("by", "");
  check(document.getElementById("mixed") !== null, "points that differ in more are said");
  set("by", "system");
  check(document.getElementById("mixed") === null, "and no longer");
  set("x", "system");
  check(document.getElementById("plot").textContent.includes("sparse-dllm"), "words along x");
  set("x", "seed");
  same(circles("plot").length, 12, "a point for each seed");
  set("logx", true);
  set("logy", true);
  same(document.querySelectorAll("#plot svg circle").length, 12, "logarithmic axes");
  check(!document.getElementById("plot").innerHTML.includes("NaN"), "no place is NaN");
}

function testOverlays() {
  const before = lines("overlays").length;
  same(before, 2 * 4, "a curve for each setup, twice");
  const box = document.querySelectorAll("#runs input[type=checkbox]")[1];
  box.click();
  same(lines("overlays").length, before + 2, "a chosen run is drawn");
  box.click();
  same(lines("overlays").length, before, "and no longer");
  set("f-system", "sparse-dllm");
  document.getElementById("choose").click();
  same(lines("overlays").length, 2 * 6, "the runs that are left are chosen");
  set("f-system", "");
  set("distribution", "ttft_s");
  check(document.getElementById("overlays").textContent.includes("time to first token (s)"), "another distribution");
  set("course", "kv_bytes");
  check(document.getElementById("overlays").textContent.includes("KV in use (GiB)"), "another course");
  check(!document.getElementById("overlays").innerHTML.includes("NaN"), "no place is NaN");
}

function testRun() {
  same(bodyRows("requests").length, 40, "requests");
  check(isSorted(cells("requests", "latency (s)").map(Number), true), "the slowest first");
  set("of-run", "7");
  check(document.getElementById("run").textContent.startsWith("run 7, sparse-dllm"), "another run");
  check(document.getElementById("run").textContent.includes("answers-assumed"), "its warnings");
  check(document.getElementById("run").textContent.includes("kernels/profiles/l40s.csv"), "its files");
  const link = [...document.querySelectorAll("#runs a")].find(a => a.textContent === "3");
  link.click();
  check(document.getElementById("run").textContent.startsWith("run 3, dllm-serve"), "a link opens its run");
  headings("requests")[column("requests", "arrival (s)")].click();
  check(isSorted(cells("requests", "arrival (s)").map(Number), false), "requests sort");
}

/* Whatever answers to a click is reached by the tabulator key, and has a name. */
function testKeyboard() {
  const all = [...document.querySelectorAll("*")].filter(e => e.onclick !== null || e.onchange !== null || e.oninput !== null);
  check(all.length > 40, "controls");
  for (const element of all) {
    const isNative = ["BUTTON", "SELECT", "INPUT"].includes(element.tagName) || (element.tagName === "A" && element.hasAttribute("href"));
    check(isNative && element.tabIndex >= 0 && !element.disabled, `${element.outerHTML.slice(0, 60)} is no control`);
    const name = element.closest("label") !== null || element.hasAttribute("aria-label") || element.textContent !== "";
    check(name, `${element.outerHTML.slice(0, 60)} has no name`);
  }
  for (const wide of document.querySelectorAll(".wide[role]")) same(wide.tabIndex, 0, "a region that scrolls");
}

try {
  for (const test of [testTable, testFilters, testPlot, testOverlays, testRun, testKeyboard]) test();
} catch (fault) {
  failures.push(String(fault.stack || fault));
}
failures.push(...faults);
document.body.append(make("pre", {id: "tested"}, failures.length === 0 ? `ok, ${checks} checks` : "failed:\n" + failures.join("\n")));
