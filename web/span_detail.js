// What is known of one span, in words: what it is, what it waited for, and why it did not start earlier.
import { element } from "./elements.js";
import { bytes_text, change_text, time_text } from "./formats.js";
import { kTrafficNames, kTrafficWords } from "./palette.js";

const kMostListed = 10;
const kWaitWords = ["data", "order", "memory"];

// The executions that a span waited for, the last to end first: [{span, kind}].
export function waits_of(timeline, span) {
  const { spans, waits } = timeline, operation = spans.operation[span], found = [];
  if (!waits) return found;
  for (let d = waits.begin[operation]; d < waits.begin[operation + 1]; ++d) {
    const before = timeline.span_of(waits.operation[d], spans.iteration[span] - waits.distance[d]);
    if (before !== undefined) found.push({ span: before, kind: waits.kind[d] });
  }
  return found.sort((a, b) => spans.end[b.span] - spans.end[a.span]);
}

// The other members of a transfer in the same iteration.
function peers_of(timeline, span) {
  const { operations, spans } = timeline, own = spans.operation[span], transfer = operations.transfer[own];
  const peers = [];
  if (transfer < 0) return peers;
  for (let o = 0; o < operations.count; ++o) {
    if (o === own || operations.transfer[o] !== transfer) continue;
    const peer = timeline.span_of(o, spans.iteration[span]);
    if (peer !== undefined) peers.push(peer);
  }
  return peers;
}

export function name_of_span(timeline, span) {
  return String(timeline.names[timeline.operations.name[timeline.spans.operation[span]]] ?? "?");
}

export function place_of_span(timeline, span) {
  const operation = timeline.spans.operation[span], rank = timeline.ranks[timeline.operations.rank[operation]];
  const batch = timeline.operations.micro_batch[operation];
  return `${rank.name}, ${rank.queues[timeline.operations.queue[operation]]}${batch >= 0 ? `, micro-batch ${batch}` : ""}`;
}

// Why it starts when it does: one sentence.
export function reason_of_start(timeline, span) {
  const { spans } = timeline, start = spans.start[span], waits = waits_of(timeline, span);
  const slack = Math.max(1, 1e-6 * (timeline.period || 1));
  const last = waits[0], own_ready = Math.max(spans.issued[span], spans.ready[span]);
  if (start > own_ready + slack) {
    const late = peers_of(timeline, span)
      .map((peer) => [Math.max(spans.issued[peer], spans.ready[peer]), peer]).sort((a, b) => b[0] - a[0])[0];
    if (late && late[0] > own_ready) {
      return `It was ready ${time_text(start - own_ready)} earlier, but ${place_of_span(timeline, late[1])} came to it last.`;
    }
  }
  if (!last) return "It waited for nothing that this window shows.";
  const gap = start - spans.end[last.span], name = name_of_span(timeline, last.span);
  const why = last.kind === 2 ? "the memory that it uses was free" : last.kind === 1 ? "its queue was free" : "its data was there";
  if (gap <= slack) return `It started as soon as ${why}: when \u201c${name}\u201d ended.`;
  return `What it waited for ended ${time_text(gap)} before it started; the last was \u201c${name}\u201d.`;
}

function facts(timeline, span, algorithms) {
  const { operations: o, spans, names } = timeline, operation = spans.operation[span], length = spans.end[span] - spans.start[span];
  const rows = [["where", place_of_span(timeline, span)], ["phase", String(names[o.phase[operation]] ?? "")],
    ["starts", time_text(spans.start[span])], ["takes", time_text(length)]];
  const alone = o.alone[operation];
  if (alone > 0 && Math.abs(length - alone) > 0.005 * alone) {
    rows.push(["alone", `${time_text(alone)} (${change_text(length, alone)})`]);
  }
  if (o.traffic[operation] >= 0) {
    const collective = o.collective[operation] >= 0 ? String(names[o.collective[operation]]) : "";
    rows.push(["kind", `${collective ? `${collective}, ` : ""}${kTrafficWords[kTrafficNames[o.traffic[operation]]]}`]);
    const ways = Object.keys(algorithms?.[collective] ?? {});
    if (ways.length) rows.push(["algorithm", ways.join(" or ")]);
    if (o.bytes[operation] > 0) rows.push(["bytes", `${bytes_text(o.bytes[operation])}, ${bytes_text((o.bytes[operation] * 1e9) / Math.max(1, length))}/s`]);
    const size = o.group_size[operation];
    if (o.group[operation] >= 0) rows.push(["group", `${names[o.group[operation]]}${size > 0 ? `, ${size} ranks` : ""}`]);
  }
  return element("dl", {}, rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function exposed_part(timeline, span) {
  const { exposed, spans, operations } = timeline, operation = spans.operation[span];
  let sum = 0;
  if (operations.traffic[operation] < 0) return sum;
  for (let i = 0; i < exposed.count; ++i) {
    if (exposed.rank[i] !== operations.rank[operation] || exposed.traffic[i] !== operations.traffic[operation]) continue;
    sum += Math.max(0, Math.min(exposed.end[i], spans.end[span]) - Math.max(exposed.begin[i], spans.start[span]));
  }
  return sum;
}

// `go_to` is called with a span that was clicked.
export function span_detail(timeline, span, algorithms, go_to) {
  const { spans } = timeline, waits = waits_of(timeline, span), exposed = exposed_part(timeline, span);
  const entry = ({ span: other, kind }) => element("li", {}, make_link(timeline, other, go_to),
    element("span", { class: "small" }, ` ${kWaitWords[kind]}, ended ${time_text(spans.start[span] - spans.end[other])} before`));
  return [
    element("div", {}, element("h3", {}, name_of_span(timeline, span)), facts(timeline, span, algorithms)),
    element("div", {}, element("h3", {}, "Why here, and not earlier"), element("p", {}, reason_of_start(timeline, span)),
      exposed > 0 ? element("p", { class: "late" }, `${time_text(exposed)} of it are exposed: the rank computes nothing.`) : null),
    element("div", {}, element("h3", {}, waits.length ? `Waited for ${waits.length}` : "Waits"),
      waits.length ? element("ul", {}, waits.slice(0, kMostListed).map(entry))
                   : element("p", { class: "note" }, timeline.waits ? "Nothing in this window." : "The trace does not say."),
      waits.length > kMostListed ? element("p", { class: "small" }, `and ${waits.length - kMostListed} more`) : null),
  ];
}

function make_link(timeline, span, go_to) {
  const button = element("button", { type: "button" }, name_of_span(timeline, span));
  button.addEventListener("click", () => go_to(span));
  return button;
}

// What a stretch without computation waited for.
export function stretch_words(timeline, stretch) {
  const { exposed } = timeline, kind = kTrafficWords[kTrafficNames[exposed.traffic[stretch]]] ?? "communication";
  return `exposed: waits ${time_text(exposed.end[stretch] - exposed.begin[stretch])} for ${kind}`;
}
