// Theme switch, local time on hover, charts. Pages work without any of it.
(function () {
  "use strict";
  var root = document.documentElement;
  var system = window.matchMedia("(prefers-color-scheme: dark)");

  function dark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  }

  var button = document.getElementById("theme");
  if (button) {
    button.addEventListener("click", function () {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("gridpost-theme", root.dataset.theme); } catch (error) { return; }
      charts(document);
    });
  }
  system.addEventListener("change", function () { charts(document); });

  function times(scope) {
    scope.querySelectorAll("time[datetime]").forEach(function (element) {
      var at = new Date(element.getAttribute("datetime"));
      element.title = at.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
    });
  }

  function colour(name) {
    return getComputedStyle(root).getPropertyValue(name).trim();
  }

  function seconds(value) {
    if (value === null || value === undefined) return "–";
    if (value < 1) return Math.round(value * 1000) + " ms";
    if (value < 60) return value.toFixed(1) + " s";
    if (value < 3600) return (value / 60).toFixed(1) + " min";
    return (value / 3600).toFixed(1) + " h";
  }

  function megawatts(value) {
    return value === null || value === undefined ? "–" : (value / 1000).toLocaleString("en", { maximumFractionDigits: 1 }) + " MW";
  }

  var SERIES = {
    atc: [
      { label: "available", colour: "--chart-1", fill: true },
      { label: "offered", colour: "--chart-1", dash: [6, 4] },
      { label: "available back", colour: "--chart-2", fill: true },
      { label: "offered back", colour: "--chart-2", dash: [6, 4] },
    ],
    traffic: [
      { label: "sent", colour: "--chart-1" },
      { label: "received", colour: "--chart-2" },
      { label: "in trouble", colour: "--chart-3" },
    ],
    latency: [
      { label: "median", colour: "--chart-1" },
      { label: "95th percentile", colour: "--chart-3" },
    ],
  };

  function draw(element) {
    if (element.chart) element.chart.destroy();
    element.replaceChildren();
    var kind = element.dataset.kind;
    var data = JSON.parse(element.dataset.chart);
    var labels = element.dataset.labels ? JSON.parse(element.dataset.labels) : [];
    var show = kind === "latency" ? seconds : kind === "atc" ? megawatts : function (value) { return value === null ? "–" : String(value); };
    var axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    var series = SERIES[kind].map(function (one, index) {
      return {
        label: labels[index] || one.label,
        stroke: colour(one.colour),
        fill: kind === "traffic" || one.fill ? colour(one.colour) + "22" : undefined,
        dash: one.dash,
        paths: kind === "atc" ? uPlot.paths.stepped({ align: 1 }) : undefined,
        width: 2,
        points: { show: kind === "latency", size: 5 },
        spanGaps: true,
        value: function (self, value) { return show(value); },
      };
    });
    element.chart = new uPlot({
      width: Math.max(200, element.clientWidth),
      height: 220,
      tzDate: function (at) { return uPlot.tzDate(new Date(at * 1000), "Etc/UTC"); },
      cursor: { y: false },
      scales: { y: { range: function (self, low, high) { return [0, high > 0 ? high * 1.1 : 1]; } } },
      axes: [
        Object.assign({ values: [[86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]] }, axis),
        Object.assign({ size: kind === "atc" ? 80 : 62, values: function (self, ticks) { return ticks.map(show); } }, axis),
      ],
      series: [{ value: "{YYYY}-{MM}-{DD} {HH}:{mm} UTC" }].concat(series),
    }, data, element);
  }

  function charts(scope) {
    if (typeof uPlot === "undefined") return;
    scope.querySelectorAll(".chart[data-chart]").forEach(draw);
  }

  var waiting = null;
  window.addEventListener("resize", function () {
    clearTimeout(waiting);
    waiting = setTimeout(function () { charts(document); }, 150);
  });

  // What somebody has unfolded stays so when a page refreshes itself.
  var unfolded = [];
  document.addEventListener("htmx:beforeSwap", function (event) {
    unfolded = Array.from(event.target.querySelectorAll("details"), function (one) { return one.open; });
  });
  document.addEventListener("htmx:afterSwap", function (event) {
    event.target.querySelectorAll("details").forEach(function (one, index) { one.open = unfolded[index] || one.open; });
    times(event.target);
    charts(event.target);
  });
  times(document);
  charts(document);
})();
