// Keeps what a page shows up to date: it is asked for again when something changed, and what differs is replaced.
"use strict";

let asking = false;
let wanted = false;

async function refresh() {
  if (asking || document.hidden) {
    wanted = true;
    return;
  }
  asking = true;
  wanted = false;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
    if (answer.ok) replaceLive(new DOMParser().parseFromString(await answer.text(), "text/html"));
    document.body.classList.toggle("stale", !answer.ok);
  } catch {
    document.body.classList.add("stale");
  }
  asking = false;
  if (wanted) setTimeout(refresh, 300);
}

function replaceLive(page) {
  document.title = page.title;
  page.querySelectorAll(".command").forEach(addCopy);
  for (const old of document.querySelectorAll("[data-live]")) {
    const now = page.getElementById(old.id);
    if (!now) continue;
    for (const open of old.querySelectorAll("li[id] details[open]")) {
      now.querySelector(`#${CSS.escape(open.closest("li").id)} details`)?.setAttribute("open", "");
    }
    if (old.isEqualNode(now)) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    for (const each of [...old.attributes]) if (!now.hasAttribute(each.name)) old.removeAttribute(each.name);
    for (const each of now.attributes) old.setAttribute(each.name, each.value);
    old.replaceChildren(...now.childNodes);
    if (focused) old.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
  }
  drawAges();
}

// How old the rows of each view were in the last 15 minutes, and how many offsets it applies per second: this browser
// remembers what it has seen, so any process of the API may answer it.
const KEPT_S = 15 * 60;
const GAP_S = 15; // without a look for so long, the line has a gap
const RATE_S = 30; // a rate is shown if the look before is no older

function drawAges() {
  const before = JSON.parse(sessionStorage.getItem("ages") ?? "{}");
  const now = {};
  for (const cell of document.querySelectorAll("[data-age]")) {
    const { view, age, of } = cell.dataset;
    const [at, applied] = [Number(cell.dataset.at), Number(cell.dataset.applied)];
    const last = before[view] ?? { points: [] };
    const points = last.points.filter(([then]) => at - KEPT_S < then && then < at);
    if (age) points.push([at, Number(age)]);
    const seconds = at - last.at;
    let rate = seconds === 0 ? last.rate : undefined;
    if (seconds > 0 && seconds <= RATE_S && last.of === of) rate = Math.max(0, applied - last.applied) / seconds;
    now[view] = { at, applied, of, rate, points };
    if (points.length) cell.innerHTML = line(points, at);
    if (rate !== undefined) {
      cell.nextElementSibling.textContent = `${rate < 10 ? rate.toFixed(1) : Math.round(rate).toLocaleString("en")}/s`;
    }
  }
  sessionStorage.setItem("ages", JSON.stringify(now));
}

function line(points, at) {
  const highest = Math.max(...points.map(([, age]) => age));
  const top = Math.max(10, highest); // ages of up to 5 s are those of heartbeats, and should look like nothing
  const lines = [];
  let last = -Infinity;
  let end = [0, 0];
  for (const [then, age] of points) {
    if (then - last > GAP_S) lines.push("");
    last = then;
    end = [158 * (1 - (at - then) / KEPT_S), 20 * (1 - age / top) + 2].map((each) => each.toFixed(1));
    lines.push(`${lines.pop()} ${end}`);
  }
  const text = `age of the rows in the last 15 minutes: ${points.at(-1)[1].toFixed(1)} s now, ${highest.toFixed(1)} s at most`;
  const drawn = lines.map((each) => `<polyline points="${each}"/>`).join("");
  return `<svg viewBox="0 0 160 24" width="160" height="24" role="img" aria-label="${text}">${drawn}<circle cx="${end[0]}" cy="${end[1]}" r="2"/></svg>`;
}

drawAges();

const { changes, refresh: every } = document.body.dataset;
if (every) setInterval(refresh, every * 1000);
if (changes) {
  const source = new EventSource(changes);
  for (const kind of ["change", "reset"]) {
    source.addEventListener(kind, () => {
      refresh();
      setTimeout(refresh, 1000); // other views on the page, such as that of the events, may have it a moment later
    });
  }
  source.addEventListener("open", (event) => {
    document.body.classList.add("followed");
    if (event.data) refresh(); // what changed since the page was made
  });
}
document.addEventListener("visibilitychange", () => wanted && refresh());

// A slider shows the version while it moves, and asks for it when it rests.
for (const slider of document.querySelectorAll("input[type=range]")) {
  const shown = document.getElementById(slider.dataset.shows);
  slider.addEventListener("input", () => (shown.textContent = slider.value));
  slider.addEventListener("change", () => slider.form.requestSubmit());
}

document.querySelectorAll(".command").forEach(addCopy);
function addCopy(command) {
  const button = command.ownerDocument.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(command.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  command.append(button);
}
