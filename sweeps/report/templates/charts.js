"use strict";
// Draws the figures one after another, follows the page's colors and width, and links points.
const figures = (() => {
  const paper = { ink: "#1c2126", grid: "rgba(110,118,129,.3)", sheet: "#ffffff" };
  const narrow = 600;
  const between = 100;
  const charts = [...document.querySelectorAll("[data-figure]")];
  const drawn = [];
  const listeners = [];

  const screenLook = () => {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    return { ink: read("--ink"), grid: read("--grid"), sheet: read("--sheet") };
  };
  const axisKeys = (layout, letter) =>
    Object.keys(layout).filter((key) => new RegExp(`^${letter}axis\\d*$`).test(key));

  // Narrow pages have one panel below the other, and the legend under them.
  const arrange = (chart) => {
    const own = chart.figure.layout;
    const layout = JSON.parse(JSON.stringify(own));
    if (chart.clientWidth >= narrow) return layout;
    const traces = chart.figure.data;
    const used = (key) => traces.some((t) => (t[`${key[0]}axis`] ?? key[0]) === key.replace("axis", ""));
    const [across, up] = ["x", "y"].map((letter) => axisKeys(own, letter).filter(used));
    const rows = new Set(up.map((key) => String(own[key].domain))).size;
    const panel = Math.min(across.length > 1 ? 320 : 250, (own.height - own.margin.t - own.margin.b) / rows);
    const total = across.length * (panel + between) - between;
    across.forEach((key, place) => {
      const top = 1 - (place * (panel + between)) / total;
      layout[key].domain = [0, 1];
      layout[up[place]].domain = [Math.max(top - panel / total, 0), top];
    });
    // Upright labels have room for many ticks side by side.
    const crowded = across.filter((key) => own[key].ticktext?.length > 3);
    for (const key of crowded) layout[key].tickangle = 90;
    const names = traces.filter((trace) => trace.showlegend).length;
    const bottom = own.margin.b + (crowded.length ? 90 : 0) + 20 * names;
    const font = { size: 11 };
    layout.legend = { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, font };
    const top = own.annotations ? 40 : 10;
    layout.margin = { ...own.margin, l: 50, r: 12, t: top, b: bottom };
    layout.height = layout.margin.t + bottom + total;
    return layout;
  };

  const paint = (layout, look) => {
    layout.font = { ...layout.font, color: look.ink };
    layout.hoverlabel = { bgcolor: look.sheet, font: { color: look.ink } };
    for (const letter of ["x", "y"]) {
      for (const key of axisKeys(layout, letter)) layout[key].gridcolor = look.grid;
    }
    return layout;
  };

  const config = {
    displaylogo: false,
    responsive: false,
    modeBarButtonsToRemove: ["autoScale2d", "zoomIn2d", "zoomOut2d"],
  };
  const draw = (chart, look = screenLook()) => {
    const layout = paint(arrange(chart), look);
    const isLinked = chart.figure.data.some((trace) => trace.customdata);
    const isTouch = matchMedia("(pointer: coarse)").matches;
    layout.dragmode = isTouch ? false : isLinked ? "select" : "zoom";
    chart.style.minHeight = `${layout.height}px`;
    const displayModeBar = chart.clientWidth < narrow ? false : "hover";
    return Plotly.react(chart, chart.figure.data, layout, { ...config, displayModeBar });
  };

  const prepare = (chart) => {
    chart.figure = JSON.parse(document.getElementById(chart.dataset.figure).textContent);
    draw(chart);
    drawn.push(chart);
    const scope = chart.closest("article");
    chart.on("plotly_selected", (event) => {
      const rows = event?.points.map((point) => point.customdata).filter((row) => row != null);
      if (rows) for (const listener of listeners) listener(scope, new Set(rows));
    });
    chart.on("plotly_deselect", () => {
      for (const listener of listeners) listener(scope, null);
    });
  };

  // Marks rows in every drawn figure of an article, one figure after another; null marks none.
  let marking = 0;
  const mark = (scope, rows) => {
    marking += 1;
    const own = marking;
    const waiting = drawn.filter((chart) => chart.closest("article") === scope);
    const step = () => {
      const chart = waiting.shift();
      if (!chart || own !== marking) return;
      markChart(chart, rows);
      setTimeout(step, 0);
    };
    setTimeout(step, 100);
  };
  const markChart = (chart, rows) => {
    const changes = { selectedpoints: [], opacity: [] };
    const places = [];
    chart.figure.data.forEach((trace, place) => {
      if (!trace.customdata) return;
      const chosen = [];
      trace.customdata.forEach((row, index) => rows?.has(row) && chosen.push(index));
      const isFaded = rows && !chosen.length && trace.mode.includes("lines");
      changes.selectedpoints.push(rows ? chosen : null);
      changes.opacity.push(isFaded ? 0.12 : (trace.opacity ?? 1));
      places.push(place);
    });
    if (places.length) Plotly.restyle(chart, changes, places);
  };

  const queue = [...charts];
  const next = () => {
    const chart = queue.shift();
    if (!chart) return;
    prepare(chart);
    setTimeout(next, 0);
  };
  next();

  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    for (const chart of drawn) draw(chart);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const chart of drawn) draw(chart);
  });
  addEventListener("beforeprint", () => {
    while (queue.length) prepare(queue.shift());
    for (const chart of drawn) {
      draw(chart, paper);
      // A taller figure would be cut at the end of a page.
      Plotly.relayout(chart, { width: 680, height: Math.min(chart.layout.height, 800) });
      chart.style.minHeight = "";
    }
  });
  addEventListener("afterprint", () => {
    for (const chart of drawn) draw(chart);
  });
  return { mark, onSelect: (listener) => listeners.push(listener) };
})();
