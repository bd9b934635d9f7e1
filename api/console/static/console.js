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
}

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
