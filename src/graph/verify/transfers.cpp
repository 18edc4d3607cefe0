// Transfers conserve bytes, and their members in several classes agree.
#include <algorithm>
#include <map>
#include <set>

#include "graph/operation_part.hpp"
#include "graph/verify/rules.hpp"

namespace weft {
namespace {

// Gathers may round to fp8 on the way (Layout::products): what arrives is only read by products that round alike.
bool may_round(const Operation& op, const Value& value) {
  const Communication& c = *op.communication;
  return c.collective == Collective::all_gather && c.format == WireFormat{ElementType::fp8} && is_float(value.dtype) &&
         value.scale_block == 0;
}

// Sizes are those on the wire, whatever the values take in memory.
struct Moved {
  Bytes in, out;
};

Moved moved_by(const StepGraph& graph, const Operation& op) {
  const WireFormat& format = op.communication->format;
  const auto on_wire = [&](ValueId id) {
    const Value& value = graph.value(id);
    if (value.format() != format && !may_round(op, value)) {
      reject(graph, op, "carries {} as {} in blocks of {}, which '{}' is not", name_of(op.communication->collective),
             name_of(format.type), format.block, value.name);
    }
    return wire_bytes(value.elements(), format);
  };
  Moved moved;
  for (const Read& read : op.reads) moved.in += on_wire(read.value);
  for (const Write& write : op.writes) moved.out += on_wire(write.value);
  return moved;
}

// Shards hold whole elements, so the last one of a group of n may be padded by up to n - 1 of them.
bool equal_but_padding(Bytes padded, Bytes exact, std::int64_t group, std::int64_t width) {
  return exact <= padded && padded.value - exact.value < group * width;
}

void verify_bytes(const StepGraph& graph, const Operation& op, const ClassGroup& whole) {
  const Communication& c = *op.communication;
  const auto [in, out] = moved_by(graph, op);
  const std::int64_t n = whole.scoped(c.scope, c.levels).view.size;
  const std::int64_t padding = whole.view.size;  // a stage has that of the shards of all members
  const std::int64_t width = size_of(c.format.type).value;
  bool ok = true;
  switch (c.collective) {
    case Collective::all_reduce:
    case Collective::all_to_all:
      ok = in == c.bytes && out == c.bytes;
      break;
    case Collective::all_gather:
      // kv_gather takes keys and values out of packed queries, keys and values.
      ok = op.role == Role::kv_gather ? in * n >= c.bytes && out == c.bytes
                                      : in * n == c.bytes && equal_but_padding(c.bytes, out, padding, width);
      break;
    case Collective::reduce_scatter:
      ok = out * n == c.bytes && equal_but_padding(c.bytes, in, padding, width);
      break;
    case Collective::send_recv: {
      // A tensor-parallel rank may send its slice of what all of them hold.
      const std::int64_t slices = graph.classes[op.rank_class.index()].group(GroupKind::tp).view.size;
      ok =
          c.sends ? (in == c.bytes || in == c.bytes * slices) && op.writes.empty() : out == c.bytes && op.reads.empty();
      break;
    }
    default:
      break;
  }
  if (!ok) {
    reject(graph, op, "{} of {} bytes over {} ranks reads {} bytes and writes {}", name_of(c.collective), c.bytes.value,
           n, in.value, out.value);
  }
}

void verify_part(const StepGraph& graph, const Operation& op, const ClassGroup& group) {
  const Origin& part = op.origins.front();
  if (!may_be_cut(graph, op)) reject(graph, op, "is a part of a transfer that cannot be cut");
  if (part.axis < kTokenAxis || part.axis > kCapacityAxis || part.begin < 0 || part.begin >= part.end ||
      part.end > part.of || part.of > kMaxCuts) {
    reject(graph, op, "is pieces {}..{} of {} along axis {}", part.begin, part.end, part.of, part.axis);
  }
  if (op.per_micro_batch) return verify_bytes(graph, with_all_rows(graph, op), group);
  const std::int64_t share = part_size(graph, op, part);
  if (op.communication->bytes.value != share) {
    reject(graph, op, "carries {} bytes, its part of the transfer has {}", op.communication->bytes.value, share);
  }
}

bool is_pipeline(GroupKind group) {
  return group == GroupKind::pp_prev || group == GroupKind::pp_next;
}

void verify_alone(const StepGraph& graph, const Operation& op) {
  const Communication& c = *op.communication;
  const ClassGroup& whole = graph.classes[op.rank_class.index()].group(c.group);
  if (!whole.has_scope(c.scope, c.levels)) {
    reject(graph, op, "works in scope {}, but its {} group has no such level", in_words(c.scope, c.levels),
           name_of(c.group));
  }
  const ClassGroup& group = whole.scoped(c.scope, c.levels);
  if (op.key.dtype != c.format.type) {
    reject(graph, op, "its key says {}, its communication {}", name_of(op.key.dtype), name_of(c.format.type));
  }
  if (op.key.dims[0] != c.bytes.value) {
    reject(graph, op, "its key says {} bytes, its communication {}", op.key.dims[0], c.bytes.value);
  }
  if (c.bytes.value < 1) reject(graph, op, "carries {} bytes", c.bytes.value);
  if (group.view.size < 2) reject(graph, op, "its {} group has one rank only", name_of(c.group));
  if ((c.collective == Collective::send_recv) != is_pipeline(c.group)) {
    reject(graph, op, "{} over a {} group", name_of(c.collective), name_of(c.group));
  }
  if (c.transfer < 0 && group.spans_classes()) {
    reject(graph, op, "its {} group spans {} rank classes, but it has no transfer number", name_of(c.group),
           group.members.size());
  }
  if (is_part(op)) {
    verify_part(graph, op, whole);
  } else {
    verify_bytes(graph, op, whole);
  }
}

void verify_together(const StepGraph& graph, const std::vector<OpId>& members) {
  const Operation& first = graph.op(members.front());
  std::set<ClassId> classes;
  int senders = 0;
  for (const OpId id : members) {
    const Operation& op = graph.op(id);
    const Communication& c = *op.communication;
    const Communication& agreed = *first.communication;
    if (!classes.insert(op.rank_class).second) reject(graph, op, "transfer {} has this rank class twice", c.transfer);
    if (c.collective != agreed.collective || c.scope != agreed.scope || c.levels != agreed.levels ||
        c.bytes != agreed.bytes || c.format != agreed.format || op.phase != first.phase ||
        op.per_micro_batch != first.per_micro_batch ||
        (c.group != agreed.group && !(is_pipeline(c.group) && is_pipeline(agreed.group)))) {
      reject(graph, op, "{} of {} bytes in the {} group, but the same transfer is {} of {} bytes in the {} group of {}",
             name_of(c.collective), c.bytes.value, name_of(c.group), name_of(agreed.collective), agreed.bytes.value,
             name_of(agreed.group), in_words(graph, first));
    }
    senders += c.sends ? 1 : 0;
  }
  for (const OpId id : members) {
    const Operation& op = graph.op(id);
    const ClassGroup& group = graph.classes[op.rank_class.index()].group(op.communication->group);
    if (!std::equal(classes.begin(), classes.end(), group.members.begin(), group.members.end())) {
      reject(graph, op, "{} rank classes take part, but its {} group has members of {}", classes.size(),
             name_of(op.communication->group), group.members.size());
    }
  }
  if (first.communication->collective == Collective::send_recv && (members.size() != 2 || senders != 1)) {
    reject(graph, first, "a message has one sender and one receiver, not {} of {} ends that send", senders,
           members.size());
  }
}

}  // namespace

void verify_transfers(const StepGraph& graph) {
  std::map<std::int32_t, std::vector<OpId>> numbered;
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (op.is_transfer() != (op.key.kind == OpKind::transfer)) {
      reject(graph, op, "its key says {}, but it is {}", name_of(op.key.kind),
             op.is_transfer() ? "a transfer" : "no transfer");
    }
    if (!op.is_transfer()) continue;
    verify_alone(graph, op);
    if (op.communication->transfer >= 0) numbered[op.communication->transfer].push_back(make_id<OpId>(i));
  }
  for (const auto& [number, members] : numbered) verify_together(graph, members);
}

}  // namespace weft
