// Everything here is a comfort: without it, every page and every action still works.
(function () {
  "use strict";
  var root = document.documentElement, live, age, pause, last = Date.now(), failed = false;
  root.classList.add("js");

  function keep(name, value) {
    document.cookie = "tinymq-" + name + "=" + value + "; path=/; max-age=31536000; SameSite=Strict";
  }
  function paused() { return pause && pause.getAttribute("aria-pressed") === "true"; }

  // --- refresh: polling by htmx, held while hidden, paused, or while something is open
  function busy() {
    var at = document.activeElement;
    return (at && at.closest("#main") && at.matches("input, select, textarea")) ||
      (getSelection() && String(getSelection()));
  }
  document.addEventListener("htmx:beforeRequest", function (e) {
    if (e.target.id === "live" && (document.hidden || paused() || busy())) e.preventDefault();
  });
  document.addEventListener("htmx:afterRequest", function (e) {
    if (e.target.id !== "live") return;
    failed = !e.detail.successful;
    if (!failed) last = Date.now();
    tell();
  });
  // What a person has opened stays open.
  document.addEventListener("DOMContentLoaded", function () {
    if (!window.Idiomorph) return;
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = function (name) {
      return name !== "open";
    };
    // What charts.js has drawn is not in the page that comes in.
    Idiomorph.defaults.callbacks.beforeNodeMorphed = function (node) {
      return !(node.classList && node.classList.contains("plot"));
    };
  });
  function tell() {
    if (!age || !live) return;
    var seconds = Math.max(0, Math.round((Date.now() - last) / 1000));
    var partial = document.getElementById("partial");
    age.textContent = (paused() ? "Paused, " + seconds + " s old" : "Updated " + seconds + " s ago") +
      (partial ? ", " + partial.dataset.short : "");
    age.classList.toggle("warn", failed || !!partial || (!paused() && seconds > 3 * (live.dataset.every || 5)));
  }

  function toggle() {
    if (!pause) return;
    var now = !paused();
    pause.setAttribute("aria-pressed", String(now));
    pause.title = now ? "Go on refreshing" : "Pause refresh";
    keep("paused", now ? "1" : "0");
    tell();
  }

  // --- theme: the form posts without us; with us there is no round trip
  function theme() {
    var dark = root.dataset.theme ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    keep("theme", root.dataset.theme);
    document.dispatchEvent(new Event("tinymq:theme"));
  }

  // --- copying: the clipboard is there only on https and loopback
  function copy(text, button) {
    function say(word) {
      var label = button.lastChild, before = label.textContent;
      if (before === word) return;
      label.textContent = word;
      setTimeout(function () { label.textContent = before; }, 1500);
    }
    if (!navigator.clipboard) return say("Select and copy by hand");
    navigator.clipboard.writeText(text).then(function () { say("Copied"); },
      function () { say("Not allowed"); });
  }

  document.addEventListener("click", function (e) {
    var on = e.target.closest("button, summary");
    document.querySelectorAll("details.cmd[open]").forEach(function (open) {
      if (!open.contains(e.target)) open.open = false;
    });
    if (!on) return;
    if (on.matches("[data-theme-switch]")) { e.preventDefault(); theme(); }
    else if (on.id === "pause") toggle();
    else if (on.matches("[data-copy]")) copy(on.previousElementSibling.textContent, on);
    else if (on.matches("[data-link]")) copy(location.href, on);
    else if (on.matches("[data-local]")) on.value = Intl.DateTimeFormat().resolvedOptions().timeZone || "local";
  });
  document.addEventListener("change", function (e) {
    if (e.target.id !== "every") return;
    keep("every", e.target.value);
    location.reload();
  });

  // --- keys: / search, g then a letter for a page, j and k through rows, p pause
  var leader = 0;
  document.addEventListener("keydown", function (e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "Escape") document.querySelectorAll("details.cmd[open]").forEach(function (d) {
      d.open = false;
    });
    if (e.target.matches("input, select, textarea")) return;
    if (e.key === "/") { e.preventDefault(); document.getElementById("q").focus(); }
    else if (e.key === "p") toggle();
    else if (e.key === "g") leader = Date.now();
    else if (Date.now() - leader < 1500 && e.key === "o") location.href = "/";
    else if (Date.now() - leader < 1500 && e.key === "t") location.href = "/topics";
    else if (Date.now() - leader < 1500 && e.key === "b") location.href = "/brokers";
    else if (Date.now() - leader < 1500 && e.key === "c") location.href = "/clients";
    else if (Date.now() - leader < 1500 && e.key === "n") location.href = "/channels";
    else if (Date.now() - leader < 1500 && e.key === "r") location.href = "/groups";
    else if (Date.now() - leader < 1500 && e.key === "x") location.href = "/transactions";
    else if (Date.now() - leader < 1500 && e.key === "f") location.href = "/inflight";
    else if (Date.now() - leader < 1500 && e.key === "l") location.href = "/delayed";
    else if (Date.now() - leader < 1500 && e.key === "s") location.href = "/schedules";
    else if (Date.now() - leader < 1500 && e.key === "e") location.href = "/exchanges";
    else if (Date.now() - leader < 1500 && e.key === "h") location.href = "/push";
    else if (Date.now() - leader < 1500 && e.key === "d") location.href = "/dead-letters";
    else if (e.key === "j" || e.key === "k") rows(e.key === "j" ? 1 : -1);
  });
  function rows(step) {
    var links = [].filter.call(document.querySelectorAll("main tbody th a"), function (link) {
      return link.checkVisibility();
    });
    var at = links.indexOf(document.activeElement) + step;
    if (links[at]) links[at].focus();
  }

  live = document.getElementById("live");
  age = document.getElementById("age");
  pause = document.getElementById("pause");
  if (live) live.dataset.every = document.getElementById("every").value;
  tell();
  setInterval(tell, 1000);
})();
