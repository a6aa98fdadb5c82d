// Before the first paint: what the person chose, otherwise what the system says.
(function () {
  "use strict";
  var chosen = null;
  try { chosen = localStorage.getItem("gridpost-theme"); } catch (error) { chosen = null; }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
