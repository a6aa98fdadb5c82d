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

  var SERIES = {
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
    var show = kind === "latency" ? seconds : function (value) { return value === null ? "–" : String(value); };
    var axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    var series = SERIES[kind].map(function (one) {
      return {
        label: one.label,
        stroke: colour(one.colour),
        fill: kind === "traffic" ? colour(one.colour) + "22" : undefined,
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
        Object.assign({ size: 62, values: function (self, ticks) { return ticks.map(show); } }, axis),
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

  document.addEventListener("htmx:afterSwap", function (event) {
    times(event.target);
    charts(event.target);
  });
  times(document);
  charts(document);
})();
