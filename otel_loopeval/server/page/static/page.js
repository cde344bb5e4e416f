// Keeps the list of runs up to date. The page works without it.
"use strict";

(() => {
  const EVERY_MS = 2000;
  const list = document.getElementById("runs");
  const state = document.getElementById("live-state");
  const toggle = document.getElementById("live-switch");
  const endpoint = document.getElementById("endpoint");
  if (endpoint) endpoint.textContent = location.origin;
  // A page in the middle of the list stays as it is: its rows would move away under the reader.
  if (!list || list.hasAttribute("data-still")) return;

  let tag = "";
  let shown = "";
  let paused = false;
  let failed = false;
  toggle.hidden = false;

  const rowIds = () => new Set(Array.from(list.querySelectorAll("tbody tr"), (row) => row.id));

  const show = (html) => {
    const before = rowIds();
    const focused = document.activeElement && list.contains(document.activeElement) ? document.activeElement : null;
    const scroll = list.querySelector(".scroll");
    const left = scroll ? scroll.scrollLeft : 0;
    const fresh = new DOMParser().parseFromString(html, "text/html");
    list.replaceChildren(...fresh.body.childNodes);
    const place = list.querySelector("#endpoint");
    if (place) place.textContent = location.origin;
    const after = list.querySelector(".scroll");
    if (after) after.scrollLeft = left;
    if (focused) {
      const again = focused.id ? document.getElementById(focused.id) : after;
      if (again) again.focus({ preventScroll: true });
    }
    const added = Array.from(list.querySelectorAll("tbody tr")).filter((row) => !before.has(row.id));
    for (const row of added) row.classList.add("new");
    if (added.length) {
      const bad = added.filter((row) => row.querySelector(".verdict.bad")).length;
      state.textContent = `${added.length} new run${added.length === 1 ? "" : "s"}${bad ? `, ${bad} unhealthy` : ""}`;
    }
  };

  const look = async () => {
    if (!paused && !document.hidden) {
      try {
        const answer = await fetch(list.dataset.live, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
        if (answer.status === 200) {
          const html = await answer.text();
          const first = shown === "";
          tag = answer.headers.get("ETag") || "";
          // A pause that began meanwhile counts; and what is the same shall not take a selection away.
          if (!paused && html !== shown) show(html);
          if (!paused) shown = html;
          else tag = "";
          if (first || failed) state.textContent = "Live";
        } else if (answer.status !== 304) {
          throw new Error(String(answer.status));
        }
        failed = false;
      } catch {
        if (!failed) state.textContent = "No connection to the server; trying again";
        failed = true;
      }
    }
    setTimeout(look, EVERY_MS);
  };

  toggle.addEventListener("click", () => {
    paused = !paused;
    toggle.textContent = paused ? "Resume updates" : "Pause updates";
    state.textContent = paused ? "Paused" : "Live";
  });
  look();
})();
