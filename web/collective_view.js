// A collective bench as bandwidth over size: a picture for each collective, a line for each algorithm, the library's own calls
// among them, and what the link carries.
import { element, section, svg_element } from "./elements.js";
import { bytes_text, is_number, number_of } from "./formats.js";

const kWidth = 560, kHeight = 260, kLeft = 74, kRight = 14, kTop = 12, kBottom = 34, kColours = 5;

function rows_by_collective(summary) {
  const found = new Map();
  for (const row of Array.isArray(summary.rows) ? summary.rows : []) {
    if (!(number_of(row?.size_bytes) > 0) || !(number_of(row?.bus_bandwidth) > 0)) continue;
    const collective = String(row.collective), algorithm = String(row.algorithm);
    if (!found.has(collective)) found.set(collective, new Map());
    if (!found.get(collective).has(algorithm)) found.get(collective).set(algorithm, []);
    found.get(collective).get(algorithm).push(row);
  }
  return found;
}

function scale_of(rows, link) {
  const sizes = rows.map((row) => row.size_bytes), least = Math.min(...sizes), most = Math.max(...sizes, 2 * least);
  const highest = 1.05 * Math.max(link, ...rows.map((row) => row.bus_bandwidth));
  return {
    sizes: [...new Set(sizes)].sort((a, b) => a - b), highest,
    x: (size) => kLeft + (Math.log(size / least) / Math.log(most / least)) * (kWidth - kLeft - kRight),
    y: (rate) => kHeight - kBottom - (rate / highest) * (kHeight - kTop - kBottom),
  };
}

function axes(picture, scale) {
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const rate = (share * scale.highest) / 1.05, y = scale.y(rate);
    picture.append(svg_element("path", { d: `M${kLeft} ${y}H${kWidth - kRight}`, stroke: "var(--line)" }),
      svg_element("text", { x: kLeft - 8, y: y + 4, "text-anchor": "end" }, `${(rate / 1e9).toPrecision(3)} GB/s`));
  }
  let free_from = 0;
  for (const size of scale.sizes) {
    if (scale.x(size) - 24 < free_from) continue;
    picture.append(svg_element("text", { x: scale.x(size), y: kHeight - kBottom + 16, "text-anchor": "middle" }, bytes_text(size)));
    free_from = scale.x(size) + 30;
  }
}

function line_of(picture, rows, scale, colour, name) {
  const points = [...rows].sort((a, b) => a.size_bytes - b.size_bytes);
  picture.append(svg_element("polyline", { points: points.map((row) => `${scale.x(row.size_bytes)},${scale.y(row.bus_bandwidth)}`).join(" "), fill: "none", stroke: colour, "stroke-width": 1.8 }));
  for (const row of points) {
    picture.append(svg_element("circle", { cx: scale.x(row.size_bytes), cy: scale.y(row.bus_bandwidth), r: 3, fill: colour },
      svg_element("title", {}, `${name}, ${bytes_text(row.size_bytes)}: ${(row.bus_bandwidth / 1e9).toPrecision(3)} GB/s`)));
  }
}

function bandwidth_figure(collective, algorithms, link) {
  const scale = scale_of([...algorithms.values()].flat(), link);
  const picture = svg_element("svg", { viewBox: `0 0 ${kWidth} ${kHeight}`, width: kWidth, height: kHeight, role: "img", "aria-label": `bandwidth of ${collective} over size` });
  axes(picture, scale);
  const legend = [];
  [...algorithms].forEach(([name, rows], i) => {
    const is_peer = name === "native", colour = is_peer ? "var(--ink)" : `var(--memory-${i % kColours})`;
    line_of(picture, rows, scale, colour, name);
    legend.push([colour, is_peer ? "the library's own" : name]);
  });
  if (link > 0) {
    picture.append(svg_element("path", { d: `M${kLeft} ${scale.y(link)}H${kWidth - kRight}`, stroke: "var(--muted)", "stroke-dasharray": "4 3" }));
    legend.push(["var(--muted)", "the link (dashed)"]);
  }
  return element("figure", {}, element("figcaption", {}, collective), picture,
    element("ul", { class: "legend" }, legend.map(([colour, words]) => element("li", {}, element("i", { style: { background: colour } }), words))));
}

export function collective_section(summary) {
  const found = rows_by_collective(summary);
  if (!found.size) return null;
  const world = typeof summary.world === "string" ? ` ${summary.world}.` : "", ranks = is_number(summary.ranks) ? `${summary.ranks} ranks.` : "";
  return section("collectives", "Collectives", `Bus bandwidth over the size of the buffer. ${ranks}${world}`,
    element("div", { class: "sweep" }, [...found].map(([collective, algorithms]) => bandwidth_figure(collective, algorithms, number_of(summary.link_bytes_per_s)))));
}
