// A sweep as a heat map over the two choices that matter most, and as a front: the steps that no other combination beats in
// both time and memory.
import { element, section, svg_element, table } from "./elements.js";
import { bytes_text, is_number, seconds_text } from "./formats.js";

const kWidth = 460, kHeight = 300, kLeft = 62, kBottom = 40;

// The keys of the sweep, those first whose choice changes the best step most.
function keys_by_effect(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.keys ?? {})))];
  const effect = (name) => {
    const best = new Map();
    for (const row of rows) {
      if (is_number(row.step_s)) best.set(row.keys[name], Math.min(best.get(row.keys[name]) ?? Infinity, row.step_s));
    }
    const steps = [...best.values()];
    return steps.length > 1 ? Math.max(...steps) / Math.min(...steps) : 0;
  };
  const values = (name) => new Set(rows.map((row) => row.keys?.[name])).size;
  return names.filter((name) => values(name) > 1).sort((a, b) => effect(b) - effect(a));
}

function values_of(rows, name) {
  const values = [...new Set(rows.map((row) => row.keys?.[name]))];
  const numeric = values.every((value) => is_number(Number(value)));
  return values.sort((a, b) => (numeric ? Number(a) - Number(b) : String(a) < String(b) ? -1 : 1));
}

function heat_cell(cell, fastest, slowest) {
  if (!cell.best) return element("td", { class: "none", title: cell.reason ?? "not tried" }, "\u2013");
  const share = slowest > fastest ? (slowest - cell.best.step_s) / (slowest - fastest) : 1;
  const dark = Math.round(100 * share);
  const title = Object.entries(cell.best.keys).map(([key, value]) => `${key} ${value}`).join(", ");
  return element("td", { class: cell.best.step_s === fastest ? "best" : "", title: `${title}: ${bytes_text(cell.best.memory_peak_bytes)}`,
    style: { background: `color-mix(in oklab, var(--heat-high) ${dark}%, var(--heat-low))`, color: dark > 55 ? "var(--paper)" : "var(--ink)" } },
  seconds_text(cell.best.step_s));
}

function heat_map(rows) {
  const [down, across] = keys_by_effect(rows);
  if (!across) return null;
  const columns = values_of(rows, across), lines = values_of(rows, down);
  const cells = lines.map((line) => columns.map((column) => {
    const own = rows.filter((row) => row.keys?.[down] === line && row.keys?.[across] === column);
    const best = own.filter((row) => is_number(row.step_s)).sort((a, b) => a.step_s - b.step_s)[0];
    return { best, reason: own.find((row) => row.reason)?.reason };
  }));
  const steps = cells.flat().filter((cell) => cell.best).map((cell) => cell.best.step_s);
  const fastest = Math.min(...steps), slowest = Math.max(...steps);
  return element("figure", {}, element("figcaption", {}, `The fastest step for each ${down} (down) and ${across} (across); a dash: none is feasible`),
    element("table", { class: "heat" },
      element("thead", {}, element("tr", {}, element("th", {}, `${down} \\ ${across}`), columns.map((value) => element("th", {}, String(value))))),
      element("tbody", {}, cells.map((line, i) => element("tr", {}, element("th", {}, String(lines[i])),
        line.map((cell) => heat_cell(cell, fastest, slowest)))))));
}

// Rows that no other row beats in both, by memory.
export function front_of(rows) {
  const sorted = rows.filter((row) => is_number(row.step_s) && is_number(row.memory_peak_bytes))
    .sort((a, b) => a.memory_peak_bytes - b.memory_peak_bytes || a.step_s - b.step_s);
  let fastest = Infinity;
  return sorted.filter((row) => row.step_s < fastest && ((fastest = row.step_s), true));
}

function front_figure(rows) {
  const points = rows.filter((row) => is_number(row.step_s) && is_number(row.memory_peak_bytes)), front = front_of(rows);
  if (points.length < 2) return null;
  const xs = points.map((row) => row.memory_peak_bytes), ys = points.map((row) => row.step_s);
  const x_most = 1.05 * Math.max(...xs), y_least = 0.98 * Math.min(...ys), y_most = 1.02 * Math.max(...ys);
  const x = (bytes) => kLeft + (bytes / x_most) * (kWidth - kLeft - 12);
  const y = (step) => 12 + ((y_most - step) / (y_most - y_least)) * (kHeight - kBottom - 12);
  const picture = svg_element("svg", { viewBox: `0 0 ${kWidth} ${kHeight}`, width: kWidth, height: kHeight, role: "img", "aria-label": "step against memory" });
  picture.append(svg_element("path", { d: `M${kLeft} 8V${kHeight - kBottom}H${kWidth - 8}`, fill: "none", stroke: "var(--line)" }));
  for (const share of [0.25, 0.5, 0.75, 1]) {
    picture.append(svg_element("text", { x: x(share * x_most * 0.95), y: kHeight - kBottom + 16, "text-anchor": "middle" }, bytes_text(share * x_most * 0.95)));
  }
  for (const share of [0, 0.5, 1]) {
    const step = y_least + share * (y_most - y_least);
    picture.append(svg_element("text", { x: kLeft - 8, y: y(step) + 4, "text-anchor": "end" }, seconds_text(step)));
  }
  for (const row of points) {
    const words = `${Object.entries(row.keys).map(([key, value]) => `${key} ${value}`).join(", ")}: ${seconds_text(row.step_s)}, ${bytes_text(row.memory_peak_bytes)}`;
    const circle = svg_element("circle", { cx: x(row.memory_peak_bytes), cy: y(row.step_s), r: 3.5, fill: "var(--hidden)" });
    circle.append(svg_element("title", {}, words));
    picture.append(circle);
  }
  picture.append(svg_element("polyline", { points: front.map((row) => `${x(row.memory_peak_bytes)},${y(row.step_s)}`).join(" "), fill: "none",
    stroke: "var(--input-grad)", "stroke-width": 2 }));
  for (const row of front) picture.append(svg_element("circle", { cx: x(row.memory_peak_bytes), cy: y(row.step_s), r: 4.5, fill: "var(--input-grad)" }));
  picture.append(svg_element("text", { x: (kLeft + kWidth) / 2, y: kHeight - 6, "text-anchor": "middle" }, "memory of the fullest device"));
  return element("figure", {}, element("figcaption", {}, "Step against memory; the line joins what nothing beats in both"), picture);
}

function front_table(rows) {
  const front = front_of(rows), names = Object.keys(front[0]?.keys ?? {});
  return element("details", {}, element("summary", {}, "The front in numbers"), element("div", { class: "scroll" },
    table([...names, "step", "memory"], front.map((row) => [...names.map((name) => String(row.keys[name])), seconds_text(row.step_s), bytes_text(row.memory_peak_bytes)]))));
}

export function sweep_section(summary) {
  const sweep = summary.sweep;
  if (!sweep) return null;
  const rows = [...(sweep.rows ?? []), ...(sweep.infeasible ?? [])];
  return section("sweep", "Sweep", `${rows.length} combinations, ${(sweep.rows ?? []).length} of them feasible.`,
    element("div", { class: "sweep" }, heat_map(rows), front_figure(rows)), front_table(rows));
}
