"use strict";
// Keeps the page up to date. Everything is drawn by the server: what comes is put in
// place node by node, so that focus, selection and scrolling stay where they are.
(() => {
  const live = document.getElementById("live");
  const say = (state, text) => {
    document.documentElement.dataset.live = state;
    if (live.textContent !== text) live.textContent = text;
  };

  const key = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);

  function morphAttributes(have, want) {
    for (const { name } of [...have.attributes]) {
      if (name === "open" || name === "data-changed" || name === "data-cut") continue; // the reader's, flash's, and markCut's
      if (!want.hasAttribute(name)) have.removeAttribute(name);
    }
    for (const { name, value } of want.attributes) {
      if (have.getAttribute(name) === value) continue;
      if (name === "data-state") flash(have);
      have.setAttribute(name, value);
    }
  }

  function flash(row) {
    row.removeAttribute("data-changed");
    requestAnimationFrame(() => row.setAttribute("data-changed", ""));
  }

  function morph(have, want) {
    if (have.nodeType !== Node.ELEMENT_NODE) {
      if (have.nodeValue !== want.nodeValue) have.nodeValue = want.nodeValue;
      return;
    }
    if (have.isEqualNode(want)) return;
    morphAttributes(have, want);
    morphChildren(have, want);
  }

  function morphChildren(have, want) {
    const wanted = new Set([...want.childNodes].map(key));
    const known = new Map();
    for (const child of [...have.childNodes]) {
      const k = key(child);
      if (k === null) continue;
      if (wanted.has(k)) known.set(k, child);
      else child.remove(); // first, so that what stays need not move: moving loses the focus
    }
    let at = have.firstChild;
    for (const node of [...want.childNodes]) {
      const k = key(node);
      if (k !== null && known.has(k)) {
        const old = known.get(k);
        if (old === at) at = at.nextSibling;
        else have.insertBefore(old, at);
        morph(old, node);
      } else if (k === null && at && key(at) === null && at.nodeName === node.nodeName) {
        const old = at;
        at = at.nextSibling;
        morph(old, node);
      } else {
        have.insertBefore(document.importNode(node, true), at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function show(sections) {
    const parser = new DOMParser();
    for (const [id, html] of Object.entries(sections)) {
      const have = document.getElementById(id);
      const want = parser.parseFromString(html, "text/html").getElementById(id);
      if (have && want) morph(have, want);
    }
    markAll();
  }

  // Marks the sides at which a table continues.
  function markCut(box) {
    const cut = [];
    if (box.scrollLeft >= 1) cut.push("left");
    if (box.scrollWidth - box.clientWidth - box.scrollLeft >= 1) cut.push("right");
    if (box.scrollHeight - box.clientHeight - box.scrollTop >= 1) cut.push("below");
    box.dataset.cut = cut.join(" ");
  }

  function markAll() {
    for (const box of document.querySelectorAll(".scroll")) markCut(box);
  }
  document.addEventListener("scroll", ({ target }) => { if (target.classList?.contains("scroll")) markCut(target); }, { capture: true, passive: true });
  document.addEventListener("toggle", markAll, true); // the table of workers was opened
  window.addEventListener("resize", markAll);
  markAll();

  let source, watch, silence = 45000;
  function heard() {
    say("on", "Live");
    clearTimeout(watch);
    watch = setTimeout(() => { close(); say("lost", "Connection lost, retrying"); open(); }, silence);
  }

  function open() {
    if (source) return;
    source = new EventSource("events" + location.search);
    source.addEventListener("process", (event) => {
      if (JSON.parse(event.data).identity === document.documentElement.dataset.process) return;
      close(); // the sections are those of another build or member
      say("lost", "Another process answers, reloading");
      watch = setTimeout(() => location.reload(), Math.max(0, 10000 - performance.now())); // an address with two processes does not load without end
    });
    source.addEventListener("sections", (event) => {
      heard();
      show(JSON.parse(event.data));
    });
    source.addEventListener("beat", heard);
    source.onerror = () => {
      clearTimeout(watch);
      if (source.readyState !== EventSource.CLOSED) {
        say("lost", "Connection lost, retrying");
        return;
      }
      close();
      say("lost", "Not live: refused, retrying");
      watch = setTimeout(open, 10000);
    };
  }

  function close() {
    clearTimeout(watch);
    if (source) source.close();
    source = undefined;
  }

  // A hidden page needs no updates, and browsers allow few connections.
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") open();
    else { close(); say("paused", "Paused"); }
  });
  window.addEventListener("pagehide", close);
  say("starting", "Connecting");
  if (document.visibilityState === "visible") open();
})();
