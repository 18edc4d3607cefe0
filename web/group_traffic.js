// What the transfers of each group carry: the bytes that a mean rank has sent up to a time, as a line with bends.

// What a rank sends of every byte of the buffer; each end of a message is a span of its own and counts half.
export function sent_share(collective, group_size) {
  if (group_size < 1) return 1;
  const others = (group_size - 1) / group_size;
  if (collective === "all_reduce") return 2 * others;
  if (["all_gather", "reduce_scatter", "all_to_all"].includes(collective)) return others;
  return collective === "send_recv" ? 0.5 : 1;
}

class SentBytes {
  constructor(group) {
    Object.assign(this, { group, times: [], changes: [] });
  }
  add(start, end, bytes) {
    this.times.push(start, end);
    this.changes.push(bytes / (end - start), -bytes / (end - start));
  }
  // Sorts the bends and adds up; afterwards nothing is added.
  finish() {
    const { times, changes } = this, order = Uint32Array.from(times, (_, i) => i).sort((a, b) => times[a] - times[b]);
    this.at = Float64Array.from(order, (i) => times[i]);
    this.rate = new Float64Array(order.length);
    this.sent = new Float64Array(order.length);
    for (let i = 0, rate = 0; i < order.length; ++i) {
      this.sent[i] = i ? this.sent[i - 1] + rate * (this.at[i] - this.at[i - 1]) : 0;
      this.rate[i] = rate += changes[order[i]];
    }
    this.times = this.changes = null;
    return this;
  }
  up_to(time) {
    let low = 0, high = this.at.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.at[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low ? this.sent[low - 1] + this.rate[low - 1] * (time - this.at[low - 1]) : 0;
  }
  // Bytes a nanosecond in so many equal shares of the range.
  rates(begin, end, shares) {
    const width = (end - begin) / shares, rates = new Float64Array(shares);
    let before = this.up_to(begin);
    for (let i = 0; i < shares; ++i) {
      const after = this.up_to(begin + (i + 1) * width);
      rates[i] = Math.max(0, (after - before) / width);
      before = after;
    }
    return rates;
  }
}

// Groups in the order of their first transfer.
export function traffic_of_groups(timeline) {
  const { operations: o, spans, names, ranks } = timeline, groups = new Map();
  const weight = ranks.reduce((sum, rank) => sum + rank.ranks, 0);
  for (let i = 0; i < spans.count; ++i) {
    const operation = spans.operation[i], length = spans.end[i] - spans.start[i];
    if (o.traffic[operation] < 0 || o.group[operation] < 0 || !(o.bytes[operation] > 0) || !(length > 0)) continue;
    const name = names[o.group[operation]];
    if (!groups.has(name)) groups.set(name, new SentBytes(name));
    const share = sent_share(names[o.collective[operation]], o.group_size[operation]);
    groups.get(name).add(spans.start[i], spans.end[i], (o.bytes[operation] * share * ranks[o.rank[operation]].ranks) / weight);
  }
  return [...groups.values()].map((group) => group.finish());
}
