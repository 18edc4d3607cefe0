// The memory of every stage by what it is for, against what plans may use of a device.
import { element, section } from "./elements.js";
import { bytes_text, number_of, percent_text } from "./formats.js";
import { limit_classes } from "./headline.js";

const kTerms = ["weights", "gradients", "optimizer state", "activations", "scratch"];

export function memory_section(summary) {
  const policy = summary.policies?.[summary.best], stages = policy?.memory ?? [];
  if (!stages.length) return null;
  const most = Math.max(...stages.map((stage) => Math.max(number_of(stage.bytes), number_of(stage.device_bytes))));
  const terms = [...new Set([...kTerms, ...stages.flatMap((stage) => Object.keys(stage.terms ?? {}))])]
    .filter((term) => stages.some((stage) => number_of(stage.terms?.[term]) > 0));
  const colour = (term) => `var(--memory-${Math.min(4, terms.indexOf(term))})`;
  const grid = element("div", { class: "bars" });
  stages.forEach((stage, i) => {
    const bar = element("div", { class: "bar", style: { width: `${(100 * number_of(stage.bytes)) / most}%` } });
    for (const term of terms) {
      const bytes = number_of(stage.terms?.[term]);
      if (bytes > 0) {
        bar.append(element("span", { title: `${term}: ${bytes_text(bytes)}`,
          style: { width: `${(100 * bytes) / number_of(stage.bytes)}%`, background: colour(term) } }));
      }
    }
    grid.append(element("div", { class: "name" }, String(stage.stage)),
      element("div", { class: "track" }, bar, element("div", { class: limit_classes(number_of(stage.device_bytes) / most, i === 0),
        "data-label": `for plans ${bytes_text(stage.device_bytes)}`,
        style: { left: `min(100% - 2px, ${(100 * number_of(stage.device_bytes)) / most}%)` } })),
      element("div", { class: "value" }, bytes_text(stage.bytes),
        element("small", {}, percent_text(stage.bytes, stage.device_bytes))));
  });
  const legend = element("ul", { class: "legend" }, terms.map((term) =>
    element("li", {}, element("i", { style: { background: colour(term) } }), term)));
  const note = `Under ${summary.best}. The line is what plans may use of a device.`;
  return section("memory", "Memory of a device", note, grid, legend);
}
