// The opening: figures of the best policy, and the step of every policy as a bar that is split into its terms.
import { element, section, table } from "./elements.js";
import { bytes_text, change_text, count_text, is_number, number_of, percent_text, seconds_text } from "./formats.js";
import { kTrafficNames, kTrafficWords } from "./palette.js";
import { advice, lead_sentence } from "./summary_words.js";

// The terms of a step, in the order of a bar: [words, colour, seconds].
export function step_terms(account) {
  return [
    ["compute", "compute", number_of(account.compute_s)],
    ["slowed down by communication", "slowdown", number_of(account.slowdown_s)],
    ...kTrafficNames.map((kind, i) =>
      [`exposed: ${kTrafficWords[kind]}`, `exposed-${i}`, number_of(account.exposed_by_kind?.[kind])]),
    ["bubble", "bubble", number_of(account.bubble_s)],
    ["idle", "idle", number_of(account.idle_s)],
  ];
}

function term_bar(account, longest) {
  const bar = element("div", { class: "bar", style: { width: `${(100 * account.step_s) / longest}%` } });
  for (const [words, colour, seconds] of step_terms(account)) {
    if (seconds <= 0) continue;
    bar.append(element("span", {
      title: `${words}: ${seconds_text(seconds)} (${percent_text(seconds, account.step_s)})`,
      style: { width: `${(100 * seconds) / account.step_s}%`, background: `var(--${colour})` },
    }));
  }
  return bar;
}

// Classes of a line across bars: the first one has a label, which stands left of lines that are far right.
export function limit_classes(share, is_first) {
  return `limit${is_first ? " first" : ""}${share > 0.7 ? " late" : ""}`;
}

function limit_line(seconds, longest, is_first) {
  return element("div", { class: limit_classes(seconds / longest, is_first), "data-label": `bound ${seconds_text(seconds)}`,
    style: { left: `${(100 * seconds) / longest}%` } });
}

// Rows of bars: [name, remark, account, value, remark of the value, whether it is the best, whether it is thin].
function bar_rows(summary) {
  const rows = [];
  for (const [name, policy] of Object.entries(summary.policies)) {
    const is_best = name === summary.best && Object.keys(summary.policies).length > 1;
    const measured = is_number(policy.predicted_step_s);
    const fits = policy.fits === false ? "does not fit" : policy.tight ? "memory is tight" : "";
    rows.push({ name, remark: measured ? "measured" : fits, account: policy, is_best,
      of_value: is_number(summary.bound_s) ? `${change_text(policy.step_s, summary.bound_s)} over bound` : "" });
    if (policy.predicted) {
      rows.push({ name: "", remark: "predicted", account: policy.predicted, thin: true,
        of_value: `${change_text(policy.predicted_step_s, policy.step_s)}` });
    }
  }
  return rows.filter((row) => number_of(row.account.step_s) > 0);
}

function legend(rows) {
  const seen = new Map();
  for (const row of rows) {
    for (const [words, colour, seconds] of step_terms(row.account)) {
      if (seconds > 0.0005 * row.account.step_s) seen.set(words, colour);
    }
  }
  const order = step_terms({}).filter(([words]) => seen.has(words));
  return element("ul", { class: "legend" }, order.map(([words, colour]) =>
    element("li", {}, element("i", { style: { background: `var(--${colour})` } }), words)));
}

function bars(summary) {
  const rows = bar_rows(summary), bound = number_of(summary.bound_s);
  const longest = Math.max(bound, ...rows.map((row) => row.account.step_s));
  const grid = element("div", { class: "bars" });
  rows.forEach((row, i) => {
    grid.append(
      element("div", { class: row.is_best ? "name best" : "name" }, row.name, row.remark ? element("small", {}, row.remark) : null),
      element("div", { class: row.thin ? "track thin" : "track" }, term_bar(row.account, longest),
        bound > 0 ? limit_line(bound, longest, i === 0) : null),
      element("div", { class: "value" }, row.thin ? "" : seconds_text(row.account.step_s),
        element("small", {}, row.thin ? `${seconds_text(row.account.step_s)}, ${row.of_value}` : row.of_value)));
  });
  return [grid, legend(rows)];
}

function numbers(summary) {
  const header = ["policy", "step", "compute", "slow-down", "exposed", "bubble", "idle", "hidden", "MFU", "tokens/s", "memory"];
  const rows = Object.entries(summary.policies).map(([name, p]) => [name, seconds_text(p.step_s), seconds_text(p.compute_s),
    seconds_text(p.slowdown_s), seconds_text(p.exposed_comm_s), seconds_text(p.bubble_s), seconds_text(p.idle_s),
    is_number(p.hidden_pct) ? `${p.hidden_pct.toFixed(1)} %` : "\u2013", percent_text(p.mfu, 1), count_text(p.tokens_per_s),
    bytes_text(p.memory_peak_bytes)]);
  return element("details", {}, element("summary", {}, "The same in numbers"),
    element("div", { class: "scroll" }, table(header, rows)));
}

function figure(name, value, remark) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value, remark ? element("small", {}, remark) : null));
}

export function figures(summary) {
  const best = summary.policies?.[summary.best];
  if (!best) return null;
  const shown = [figure("step", seconds_text(best.step_s), summary.best)];
  if (is_number(summary.bound_s)) shown.push(figure("over the bound", change_text(best.step_s, summary.bound_s)));
  if (is_number(best.exposed_comm_s)) {
    shown.push(figure("exposed communication", percent_text(best.exposed_comm_s, best.step_s), seconds_text(best.exposed_comm_s)));
  }
  if (is_number(best.predicted_step_s)) shown.push(figure("prediction", change_text(best.predicted_step_s, best.step_s)));
  if (number_of(best.mfu) > 0) shown.push(figure("MFU", percent_text(best.mfu, 1)));
  if (is_number(best.tokens_per_s)) shown.push(figure("tokens/s", count_text(best.tokens_per_s)));
  if (is_number(best.memory_pct)) shown.push(figure("memory", percent_text(best.memory_pct, 100), bytes_text(best.memory_peak_bytes)));
  return element("dl", { class: "figures" }, shown);
}

export function headline_section(summary) {
  if (!summary.policies || !Object.keys(summary.policies).length) return null;
  const failed = Object.entries(summary.failed ?? {}).map(([name, reason]) =>
    element("p", { class: "small" }, `${name} has no plan: ${reason}`));
  return section("step", "Where the step goes", lead_sentence(summary), ...bars(summary), advice(summary), ...failed,
    numbers(summary));
}
