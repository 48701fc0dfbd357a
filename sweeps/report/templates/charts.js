"use strict";
(() => {
  const paper = { ink: "#1c2126", grid: "rgba(110,118,129,.3)", sheet: "#ffffff" };
  const screenLook = () => {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    return { ink: read("--ink"), grid: read("--grid"), sheet: read("--sheet") };
  };
  const patch = (layout, look) => {
    const changes = {
      "font.color": look.ink,
      "hoverlabel.bgcolor": look.sheet,
      "hoverlabel.font.color": look.ink,
    };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis\d*$/.test(key)) changes[`${key}.gridcolor`] = look.grid;
    }
    return changes;
  };
  const charts = [...document.querySelectorAll("[data-figure]")];
  const restyle = (look, size) => {
    for (const chart of charts) {
      Plotly.relayout(chart, { ...patch(chart.layout, look), ...size });
    }
  };

  const config = { displaylogo: false, responsive: true };
  for (const chart of charts) {
    const figure = JSON.parse(document.getElementById(chart.dataset.figure).textContent);
    Plotly.newPlot(chart, figure.data, figure.layout, config);
  }
  restyle(screenLook(), {});
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    restyle(screenLook(), {}),
  );
  addEventListener("beforeprint", () => restyle(paper, { width: 680 }));
  addEventListener("afterprint", () => restyle(screenLook(), { width: null, autosize: true }));
})();
