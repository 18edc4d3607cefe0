// What `weft analyze` found in traces: its verdicts, and the time of every rank as a bar.
import { element, section } from "./elements.js";
import { number_of, percent_text, time_text } from "./formats.js";

const kTerms = [["compute", "compute", (rank) => number_of(rank.compute_us)],
  ["communication alone", "exposed", (rank) => number_of(rank.exposed_us)],
  ["other kernels alone", "optimizer", (rank) => Math.max(0, number_of(rank.non_compute_us) - number_of(rank.exposed_us))],
  ["idle", "bubble", (rank) => number_of(rank.idle_us)]];

function verdict_words(verdict) {
  return Object.entries(verdict).filter(([, value]) => typeof value === "string").map(([, value]) => value);
}

function rank_rows(ranks) {
  const total = (rank) => kTerms.reduce((sum, [, , of]) => sum + of(rank), 0);
  const longest = Math.max(1, ...ranks.map(total)), grid = element("div", { class: "bars" });
  for (const rank of ranks) {
    const bar = element("div", { class: "bar", style: { width: `${(100 * total(rank)) / longest}%` } });
    for (const [words, colour, of] of kTerms) {
      if (of(rank) > 0) {
        bar.append(element("span", { title: `${words}: ${time_text(1000 * of(rank))} (${percent_text(of(rank), total(rank))})`,
          style: { width: `${(100 * of(rank)) / total(rank)}%`, background: `var(--${colour})` } }));
      }
    }
    grid.append(element("div", { class: "name" }, `rank ${rank.rank}`, rank.label ? element("small", {}, String(rank.label)) : null),
      element("div", { class: "track" }, bar), element("div", { class: "value" }, time_text(1000 * total(rank)),
        element("small", {}, `${percent_text(number_of(rank.exposed_us), total(rank))} exposed`)));
  }
  return grid;
}

export function trace_section(summary) {
  const ranks = (Array.isArray(summary.ranks) ? summary.ranks : []).slice(0, 64);  // a bench has their number there
  if (!ranks.length) return null;
  const verdicts = (summary.verdicts ?? []).flatMap((verdict) => verdict_words(verdict).map((text) => element("p", {}, text)));
  const warnings = (summary.warnings ?? []).map((text) => element("p", { class: "small" }, String(text)));
  return section("traces", "Where the time of the devices went", null, ...verdicts, rank_rows(ranks),
    element("ul", { class: "legend" }, kTerms.map(([words, colour]) =>
      element("li", {}, element("i", { style: { background: `var(--${colour})` } }), words))), ...warnings);
}
