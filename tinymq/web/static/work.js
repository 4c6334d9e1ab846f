// Choosing rows of a table: all of a page at once, how many, and no refresh in between.
(function () {
  "use strict";
  function form() { return document.querySelector("form[data-pick]"); }
  function boxes(at) { return [].slice.call(at.querySelectorAll("[name^='row.']:not(:disabled)")); }
  function chosen(at) { return boxes(at).filter(function (box) { return box.checked; }).length; }

  function tell() {
    var at = form();
    if (!at) return;
    var head = at.querySelector("th.pick"), count = at.querySelector("[data-count]");
    var all = at.querySelector("[name=all]"), some = chosen(at), every = boxes(at).length;
    if (head && !head.querySelector("input")) {
      head.innerHTML = "";
      var box = document.createElement("input");
      box.type = "checkbox";
      box.dataset.every = "";
      box.setAttribute("aria-label", "Choose all on this page");
      head.appendChild(box);
    }
    var whole = head && head.querySelector("input");
    if (whole) {
      whole.checked = every > 0 && some === every;
      whole.indeterminate = some > 0 && some < every;
    }
    if (count) count.textContent = all && all.checked ? "All that match chosen" : some + " chosen";
    [].forEach.call(at.querySelectorAll(".bulk button"), function (button) {
      button.disabled = !(some || (all && all.checked));
    });
  }

  document.addEventListener("change", function (e) {
    var at = form();
    if (!at || !at.contains(e.target)) return;
    if ("every" in e.target.dataset) {
      boxes(at).forEach(function (box) { box.checked = e.target.checked; });
    }
    tell();
  });
  document.addEventListener("keydown", function (e) {
    var row = e.key === "x" && e.target.closest && e.target.closest("form[data-pick] tr");
    var box = row && !e.target.matches("input") && row.querySelector("[name^='row.']:not(:disabled)");
    if (box) { box.checked = !box.checked; tell(); }
  });
  document.addEventListener("htmx:beforeRequest", function (e) {
    var at = form();
    if (e.target.id === "live" && at && (chosen(at) || at.querySelector("[name=all]:checked"))) {
      e.preventDefault();
    }
  });
  document.addEventListener("htmx:afterSettle", tell);
  tell();
})();
