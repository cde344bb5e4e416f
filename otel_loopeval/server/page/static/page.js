// Keeps the list of runs up to date, and unfolds what a link leads to. The pages work without it.
"use strict";

(() => {
  const EVERY_MS = 2000;
  // A screen reader is told of new runs this often at most: of a busy server's it would never stop talking.
  const TELL_MS = 10000;

  const unfold = () => {
    const details = document.getElementById(location.hash.slice(1))?.querySelector("details");
    if (details) details.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();

  const list = document.getElementById("runs");
  if (!list) return;
  const state = document.getElementById("live-state");
  const toggle = document.getElementById("live-switch");

  // A proxy in front may have another scheme than the server.
  const fillIn = (root) => {
    const endpoint = root.querySelector("#endpoint");
    if (endpoint) endpoint.textContent = location.origin;
  };
  fillIn(document);
  // A page in the middle of the list stays as it is: its rows would move away under the reader.
  if (list.hasAttribute("data-still")) return;

  let tag = "";
  let shown = "";
  let paused = false;
  let failed = false;
  let news = 0;
  let badNews = 0;
  let told = 0;
  toggle.hidden = false;

  const rowIds = () => new Set(Array.from(list.querySelectorAll("tbody tr"), (row) => row.id));

  // What the reader has marked would be lost.
  const isMarking = () => {
    const selection = getSelection();
    return !selection.isCollapsed && list.contains(selection.anchorNode);
  };

  const show = (html) => {
    const before = rowIds();
    const focused = document.activeElement && list.contains(document.activeElement) ? document.activeElement : null;
    const scroll = list.querySelector(".scroll");
    const left = scroll ? scroll.scrollLeft : 0;
    const fresh = new DOMParser().parseFromString(html, "text/html");
    fillIn(fresh);
    list.replaceChildren(...fresh.body.childNodes);
    const after = list.querySelector(".scroll");
    if (after) after.scrollLeft = left;
    if (focused) {
      // A row that has left the page leaves the focus to its table.
      const again = (focused.id && document.getElementById(focused.id)) || after;
      if (again) again.focus({ preventScroll: true });
    }
    const added = Array.from(list.querySelectorAll("tbody tr")).filter((row) => !before.has(row.id));
    for (const row of added) row.classList.add("new");
    news += added.length;
    badNews += added.filter((row) => row.querySelector(".verdict.bad")).length;
  };

  const tell = () => {
    if (!news || Date.now() - told < TELL_MS) return;
    state.textContent = `${news} new run${news === 1 ? "" : "s"}${badNews ? `, ${badNews} unhealthy` : ""}`;
    told = Date.now();
    news = badNews = 0;
  };

  const look = async () => {
    if (!paused && !document.hidden && !isMarking()) {
      try {
        const answer = await fetch(list.dataset.live, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
        if (answer.status === 200) {
          const html = await answer.text();
          const first = shown === "";
          tag = answer.headers.get("ETag") || "";
          // A pause that began meanwhile counts; and what is the same shall not take the focus' place away.
          if (paused) tag = "";
          else {
            if (html !== shown) show(html);
            shown = html;
            if (first) news = badNews = 0;
          }
          if (first || failed) state.textContent = "Live";
        } else if (answer.status === 304) {
          if (failed) state.textContent = "Live";
        } else {
          throw new Error(String(answer.status));
        }
        failed = false;
        tell();
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
