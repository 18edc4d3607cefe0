// Exposed time taken apart like a flame: kinds of traffic, the transfers that were waited for, stages.
import { element, section } from "./elements.js";
import { percent_text, time_text } from "./formats.js";
import { kTrafficNames, kTrafficWords } from "./palette.js";

const kLookedAt = 64, kLeastShare = 0.001, kColours = 4;

class Node {
  constructor(name) {
    Object.assign(this, { name, time: 0, children: new Map() });
  }
  child(name) {
    if (!this.children.has(name)) this.children.set(name, new Node(name));
    return this.children.get(name);
  }
  get longest_first() {
    return [...this.children.values()].sort((a, b) => b.time - a.time);
  }
}

// Transfers by rank and kind, by start.
function transfers_of(timeline) {
  const { operations: o, spans } = timeline, lists = timeline.ranks.map(() => kTrafficNames.map(() => []));
  for (let i = 0; i < spans.count; ++i) {
    const operation = spans.operation[i];
    if (o.traffic[operation] >= 0) lists[o.rank[operation]][o.traffic[operation]].push(i);
  }
  for (const list of lists.flat()) list.sort((a, b) => spans.start[a] - spans.start[b] || spans.end[a] - spans.end[b]);
  return lists;
}

// Where spans of the list that start from a time on begin.
function first_from(list, spans, time) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans.start[list[middle]] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Calls `add` with a span, or -1 where none ran, and how long it was waited for: of those that ran, the last to end.
function cut_stretch(begin, end, list, spans, add) {
  const behind = first_from(list, spans, end), looked_at = list.slice(Math.max(0, behind - kLookedAt), behind);
  for (let at = begin; at < end;) {
    let running = -1, next = end;
    for (const span of looked_at) {
      if (spans.start[span] > at) next = Math.min(next, spans.start[span]);
      else if (spans.end[span] > at && (running < 0 || spans.end[span] > spans.end[running])) running = span;
    }
    if (running >= 0) next = Math.min(next, spans.end[running]);
    add(running, next - at);
    at = next;
  }
}

// Times of a mean rank, a step.
export function exposure_tree(timeline) {
  const { exposed, spans, operations: o, names, ranks } = timeline, root = new Node("exposed"), transfers = transfers_of(timeline);
  const words = new Map();  // of names without their numbers, by the name's place
  const words_of = (name) => words.get(name) ?? words.set(name, names[name].replace(/\d+/g, "#")).get(name);
  const divisor = ranks.reduce((sum, rank) => sum + rank.ranks, 0) * (timeline.length / timeline.period);
  for (let i = 0; i < exposed.count; ++i) {
    const { name, ranks: weight } = ranks[exposed.rank[i]], kind = exposed.traffic[i];
    cut_stretch(exposed.begin[i], exposed.end[i], transfers[exposed.rank[i]][kind], spans, (span, time) => {
      const transfer = span < 0 ? "unknown" : words_of(o.name[spans.operation[span]]);
      let node = root;
      node.time += (time * weight) / divisor;
      for (const part of [kTrafficWords[kTrafficNames[kind]], transfer, name]) {
        node = node.child(part);
        node.time += (time * weight) / divisor;
      }
    });
  }
  return root;
}

function flame(node, whole, depth) {
  const words = `${node.name} ${time_text(node.time)} (${percent_text(node.time, whole)})`;
  const children = node.longest_first.filter((child) => child.time > kLeastShare * whole);
  return element("div", { class: "flame", style: { width: `${(100 * node.time) / whole}%` } },
    element("span", { title: words, class: `flame-${Math.min(depth, kColours - 1)}` }, words),
    children.length ? element("div", { class: "flames" }, children.map((child) => {
      const made = flame(child, whole, depth + 1);
      made.style.width = `${(100 * child.time) / node.time}%`;
      return made;
    })) : null);
}

export class ExposureView {
  constructor() {
    this.place = element("div", { class: "flame-root" });
    this.root = section("exposure", "What is exposed", "Exposed time of a mean rank in a step: by kind, by the transfer that was waited for, by stage.", this.place);
    this.root.hidden = true;
  }

  show(timeline) {
    const tree = exposure_tree(timeline);
    this.root.hidden = !(tree.time > 0);
    this.place.replaceChildren(...(this.root.hidden ? [] : [flame(tree, tree.time, 0)]));
  }
}
