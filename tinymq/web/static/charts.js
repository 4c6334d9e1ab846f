// Draws a live chart in the place of each SVG: the same box, with a cursor that reads values.
// Without this file the SVG stays. Colours come from the style sheet, times from the page's zone.
(function () {
  "use strict";
  if (!window.uPlot) return;
  var drawn = new Map();

  function colour(name) {
    var probe = document.createElement("i");
    probe.style.color = "var(--" + name + ")";
    document.body.append(probe);
    var found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }
  function write(value, unit) {
    var units = unit === "B" ? [" B", " KB", " MB", " GB", " TB"] : ["", " k", " M", " G", " T"], at = 0;
    while (value >= 1000 && at < 4) { value /= 1000; at++; }
    return +value.toPrecision(value < 10 ? 2 : 3) + (value || unit === "" ? units[at] : "");
  }
  function read(figure) {
    var told = JSON.parse(figure.dataset.plot), count = told.values[0].length, first = told.end / 1000;
    var times = told.values[0].map(function (_, i) { return first - (count - 1 - i) * told.step / 1000; });
    return { data: [times].concat(told.values), from: first - told.span / 1000, to: first, lines: told.lines, words: told.words, flags: told.flags || [] };
  }
  function axis(extra) {
    return Object.assign({
      stroke: colour("ink-3"), font: "11px " + getComputedStyle(document.body).fontFamily,
      grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, gap: 4
    }, extra);
  }
  function flags(figure, plot) {
    var c = plot.ctx, px = devicePixelRatio, top = plot.bbox.top, size = 15 * px;
    read(figure).flags.forEach(function (flag) {
      var x = Math.round(plot.valToPos(flag[0] / 1000, "x", true));
      x = Math.min(Math.max(x, plot.bbox.left), plot.bbox.left + plot.bbox.width - 8 * px);
      c.save();
      c.strokeStyle = colour("ink-3"); c.lineWidth = px; c.setLineDash([px, 3 * px]);
      c.beginPath(); c.moveTo(x, top - 8 * px); c.lineTo(x, top + plot.bbox.height); c.stroke();
      c.setLineDash([]); c.strokeStyle = colour("edge"); c.fillStyle = colour("ink-2");
      c.strokeRect(x - size / 2, top - 8 * px - size, size, size);
      c.font = 11 * px + "px " + getComputedStyle(document.body).fontFamily;
      c.textAlign = "center"; c.textBaseline = "middle";
      c.fillText(flag[1], x, top - 8 * px - size / 2 + px);
      c.restore();
    });
  }
  function keys(figure, plot) {
    var unit = figure.dataset.unit;
    figure.querySelectorAll(".key").forEach(function (key, i) {
      var name = key.dataset.name || (key.dataset.name = key.textContent);
      var at = plot.cursor.idx, value = at == null ? null : plot.data[i + 1][at];
      key.textContent = value == null ? name : name + " " + write(value, unit);
    });
  }
  function draw(figure) {
    var box = figure.querySelector(".plot"), told = read(figure), unit = figure.dataset.unit;
    var svg = [].find.call(figure.querySelectorAll(".chart"), function (s) { return s.clientWidth; });
    if (!svg) return;
    var zone = figure.dataset.zone, fill = colour("accent-fill"), clock = uPlot.fmtDate("{HH}:{mm}");
    var lines = [{ stroke: colour("accent"), fill: fill }, { stroke: colour("ink-3") }];
    var options = {
      width: Math.floor(svg.clientWidth), height: Math.round(svg.getBoundingClientRect().height),
      padding: [told.flags.length ? 26 : 8, 0, 0, 0], legend: { show: false }, cursor: { drag: { x: false, y: false }, points: { size: 6 } },
      tzDate: function (at) { var d = new Date(at * 1000); return zone === "local" ? d : uPlot.tzDate(d, zone); },
      scales: {
        x: { range: function () { var now = read(figure); return [now.from, now.to]; } },
        y: { range: function () { return [0, read(figure).lines.slice(-1)[0]]; } }
      },
      axes: [
        axis({ size: 20, space: 90, grid: { show: false }, values: function (u, splits) {
          var now = read(figure), half = 16 * (now.to - now.from) / (options.width - 44);
          return splits.map(function (at) { return at + half > now.to ? "" : clock(options.tzDate(at)); });
        } }),
        axis({ size: 44, splits: function () { return read(figure).lines; }, values: function () { return read(figure).words; } })
      ],
      series: [{}].concat(told.data.slice(1).map(function (_, i) {
        return Object.assign({ width: 1.6, points: { show: false } }, lines[i]);
      })),
      hooks: { setCursor: [function (u) { keys(figure, u); }], draw: [function (u) { flags(figure, u); }] }
    };
    box.hidden = false;
    drawn.set(figure, new uPlot(options, told.data, box));
  }
  function forget(figure) {
    var plot = drawn.get(figure);
    drawn.delete(figure);
    plot.destroy();
    figure.querySelector(".plot").hidden = true;
  }
  function all(again) {
    drawn.forEach(function (plot, figure) {
      if (again || !figure.isConnected) forget(figure);
      else plot.setData(read(figure).data);
    });
    document.querySelectorAll("figure[data-plot]").forEach(function (figure) {
      if (!drawn.has(figure)) draw(figure);
    });
  }
  var resized;
  addEventListener("resize", function () { clearTimeout(resized); resized = setTimeout(all, 150, true); });
  document.addEventListener("tinymq:theme", function () { all(true); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { all(true); });
  document.addEventListener("htmx:afterSettle", function () { all(false); });
  all(false);
})();
