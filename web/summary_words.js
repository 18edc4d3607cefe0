// What a summary says in words: how good the best policy is, what its step is spent on, and what would help.
import { element } from "./elements.js";
import { change_text, is_number, number_of, percent_text, seconds_text } from "./formats.js";
import { kTrafficWords } from "./palette.js";

const kReasonWords = {
  dependency: "its data came late and nothing else was ready to compute",
  held_back: "other compute was ready, and the plan lets it wait",
  issue_order: "it was issued behind something that was not done yet",
  queue_busy: "earlier transfers of its queue were under way",
  link_busy: "another transfer took a share of its links",
  memory: "the memory that it fills was in use",
  latency: "most of its time alone no bytes move",
  late_peer: "another rank reached it later",
};

// The kind of communication that is exposed longest: [name, seconds], or undefined.
function largest_exposed(policy) {
  return Object.entries(policy.exposed_by_kind ?? {}).filter(([, seconds]) => number_of(seconds) > 0)
    .sort((a, b) => b[1] - a[1])[0];
}

function step_words(policy) {
  const step = policy.step_s, largest = largest_exposed(policy);
  const parts = [`computation takes ${percent_text(number_of(policy.compute_s) + number_of(policy.slowdown_s), step)} of it`];
  if (number_of(policy.exposed_comm_s) > 0) {
    const most = largest ? `, most of it ${kTrafficWords[largest[0]] ?? largest[0]} (${seconds_text(largest[1])})` : "";
    parts.push(`${percent_text(policy.exposed_comm_s, step)} is exposed communication${most}`);
  }
  if (number_of(policy.bubble_s) > 0) parts.push(`${percent_text(policy.bubble_s, step)} is waiting for other stages`);
  if (number_of(policy.idle_s) > 0) parts.push(`${percent_text(policy.idle_s, step)} is idle`);
  return parts.join("; ");
}

export function lead_sentence(summary) {
  const best = summary.policies?.[summary.best], count = Object.keys(summary.policies ?? {}).length;
  if (!best) return "";
  const which = count > 1 ? `${summary.best} is the fastest of ${count} policies: ` : `${summary.best}: `;
  return `${which}a step of ${seconds_text(best.step_s)}. In it, ${step_words(best)}.`;
}

// One change, and the step that it gives.
function remedy_words(remedy, step) {
  return [element("code", {}, String(remedy.change)),
    ` ${seconds_text(remedy.step_s)} (${change_text(remedy.step_s, step)}${remedy.fits === false ? ", does not fit" : ""})`];
}

function exposure_item(largest, policy) {
  const remedies = (largest.remedies ?? []).flatMap((remedy, i) => [i ? ", " : "", ...remedy_words(remedy, policy.step_s)]);
  return element("li", {},
    element("b", {}, String(largest.framework_name ?? largest.name)),
    `: ${seconds_text(largest.exposed_s)} exposed, because ${kReasonWords[largest.reason] ?? largest.reason}. `,
    `Without it the step would take ${seconds_text(largest.step_without_s)}. `,
    remedies.length ? ["What helps: ", ...remedies, "."] : "");
}

// Whether any change was tried: --explain does, --out alone does not.
function has_remedies(largest) {
  return largest.some((entry) => (entry.remedies ?? []).length > 0);
}

// General advice where no change was tried: what each kind of waiting usually gives way to.
function general_items(policy, summary) {
  const items = [], step = policy.step_s, layout = summary.layout ?? {};
  if (number_of(policy.bubble_s) > 0.05 * step && number_of(layout.pp) > 1) {
    items.push("Bubbles shrink with more micro-batches, interleaving (--vpp) or a zero-bubble schedule.");
  }
  if (number_of(policy.exposed_comm_s) > 0.03 * step) {
    items.push("weft plan --explain --out DIR tries what would help.");
  }
  return items.map((text) => element("li", {}, text));
}

export function advice(summary) {
  const policy = summary.policies?.[summary.best];
  if (!policy) return null;
  const largest = policy.explanation?.largest ?? [];
  const items = largest.map((entry) => exposure_item(entry, policy));
  if (!has_remedies(largest)) items.push(...general_items(policy, summary));
  if (is_number(summary.bound_s)) {
    const gap = change_text(policy.step_s, summary.bound_s), is_below = policy.step_s < summary.bound_s;
    items.push(element("li", {}, `No schedule of this layout takes less than ${seconds_text(summary.bound_s)}`,
      summary.bound_explanation ? ` (${summary.bound_explanation})` : "", `; ${summary.best} is at ${gap}.`,
      is_below ? " A measurement below the bound says that the machine computed faster than when it was calibrated." : ""));
  }
  return items.length ? element("ul", { class: "advice" }, items) : null;
}
