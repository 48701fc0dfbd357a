"use strict";
// Table of all points: sorted, filtered, in pages, and linked with the figures.
for (const section of document.querySelectorAll("[data-points]")) {
  const data = JSON.parse(document.getElementById(section.dataset.points).textContent);
  const scope = section.closest("article");
  const pageSize = 25;
  const filters = data.columns.map(() => "");
  let order = { place: -1, up: true };
  let selected = null;
  let page = 0;

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const tools = section.querySelector(".tools");
  const table = make("table");
  section.querySelector(".scroll").append(table);
  const status = make("span", { role: "status" });
  const button = (text, action) => {
    const element = make("button", { type: "button" }, text);
    element.addEventListener("click", action);
    return element;
  };

  // A filter is a comparison, a range of numbers, or a part of the text.
  const matcher = (column, filter) => {
    const text = filter.trim().toLowerCase();
    if (!text) return () => true;
    const compared = text.match(/^(>=|<=|>|<|=|≥|≤)\s*(-?[\d.]+(?:e[-+]?\d+)?)$/);
    const range = text.match(/^(-?[\d.]+(?:e[-+]?\d+)?)\s*\.\.\s*(-?[\d.]+(?:e[-+]?\d+)?)$/);
    if (column.numbers && (compared || range)) {
      const [sign, limit] = compared ? [compared[1], Number(compared[2])] : ["", 0];
      // The whole interval of a metric must meet a limit.
      const [lows, highs] = column.ends ?? [column.numbers, column.numbers];
      const values = /[>≥]/.test(sign) ? lows : /[<≤]/.test(sign) ? highs : column.numbers;
      return (row) => {
        const value = values[row];
        if (value === null) return false;
        if (range) return value >= Number(range[1]) && value <= Number(range[2]);
        if (sign === ">") return value > limit;
        if (sign === "<") return value < limit;
        if (sign === "=") return value === limit;
        return sign === ">=" || sign === "≥" ? value >= limit : value <= limit;
      };
    }
    return (row) => column.texts[row].toLowerCase().includes(text);
  };
  const listed = () => {
    const matchers = data.columns.map((column, place) => matcher(column, filters[place]));
    const rows = data.ids
      .map((_, row) => row)
      .filter((row) => (!selected || selected.has(row)) && matchers.every((test) => test(row)));
    const column = data.columns[order.place];
    if (!column) return rows;
    const values = column.numbers ?? column.texts;
    const rank = (a, b) => {
      if (values[a] === null || values[b] === null) return (values[a] === null) - (values[b] === null);
      const sign = order.up ? 1 : -1;
      return values[a] < values[b] ? -sign : values[a] > values[b] ? sign : 0;
    };
    return rows.sort(rank);
  };

  const head = make("thead");
  const body = make("tbody");
  table.append(head, body);
  const titles = make("tr");
  const inputs = make("tr");
  const address = (id) => data.artifacts && `${data.artifacts}/${encodeURIComponent(id)}/`;
  const headings = data.columns.map((column, place) => {
    const sort = button(column.label, () => {
      order = { place, up: order.place === place ? !order.up : true };
      page = 0;
      show();
    });
    const cell = make("th", { scope: "col", title: column.key }, sort);
    titles.append(cell);
    const input = make("input", { type: "search", "aria-label": `Filter ${column.label}`, size: 8 });
    input.placeholder = column.numbers ? ">= …" : "text";
    input.addEventListener("input", () => {
      filters[place] = input.value;
      page = 0;
      show(true);
    });
    inputs.append(make("td", {}, input));
    return cell;
  });
  const lastTitles = ["point", ...(data.runs ? ["MLflow"] : [])];
  for (const title of lastTitles) {
    titles.append(make("th", { scope: "col" }, title));
    inputs.append(make("td", {}));
  }
  head.append(titles, inputs);

  const rowElement = (row) => {
    const cells = data.columns.map((column, place) =>
      make(place ? "td" : "th", place ? {} : { scope: "row" }, column.texts[row]),
    );
    const id = data.ids[row];
    const shown = data.shown[row];
    cells.push(make("td", { title: id }, address(id) ? make("a", { href: address(id) }, shown) : shown));
    if (data.runs) {
      const href = data.runs + encodeURIComponent(`'${id}'`);
      cells.push(make("td", {}, make("a", { href, "aria-label": `MLflow run of ${id}` }, "run")));
    }
    return make("tr", {}, ...cells);
  };
  const show = (isFiltered = false) => {
    const rows = listed();
    const pages = Math.max(1, Math.ceil(rows.length / pageSize));
    page = Math.min(page, pages - 1);
    body.replaceChildren(...rows.slice(page * pageSize, (page + 1) * pageSize).map(rowElement));
    headings.forEach((cell, place) => {
      const isSorted = order.place === place;
      cell.setAttribute("aria-sort", isSorted ? (order.up ? "ascending" : "descending") : "none");
    });
    const of = rows.length === data.ids.length ? "" : ` of ${data.ids.length.toLocaleString("en")}`;
    status.textContent = `${rows.length.toLocaleString("en")}${of} points, page ${page + 1} of ${pages}`;
    previous.disabled = page === 0;
    following.disabled = page === pages - 1;
    if (isFiltered) {
      const isWhole = rows.length === data.ids.length;
      figures.mark(scope, isWhole ? null : new Set(rows));
    }
  };
  const turn = (step) => () => {
    page += step;
    show();
  };
  const copy = async () => {
    const lines = listed().map((row) =>
      [...data.columns.map((c) => c.numbers?.[row] ?? c.texts[row]), data.ids[row]].join("\t"),
    );
    const text = [[...data.columns.map((c) => c.key), "point_id"].join("\t"), ...lines].join("\n");
    await navigator.clipboard.writeText(text);
    status.textContent = `${lines.length} rows copied, to paste into a spreadsheet`;
  };
  const clear = () => {
    filters.fill("");
    for (const input of inputs.querySelectorAll("input")) input.value = "";
    order = { place: -1, up: true };
    selected = null;
    page = 0;
    show(true);
  };
  const previous = button("Previous", turn(-1));
  const following = button("Next", turn(1));
  tools.append(status, previous, following, button("Copy rows", copy), button("Show all", clear));
  figures.onSelect((origin, rows) => {
    if (origin !== scope) return;
    selected = rows;
    page = 0;
    show(true);
  });
  show();
}
