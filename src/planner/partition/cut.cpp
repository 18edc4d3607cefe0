#include "planner/partition/cut.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "graph/operation_part.hpp"
#include "graph/own_rows.hpp"

namespace weft {
namespace {

std::int32_t numbers_in_use(const StepGraph& graph) {
  std::int32_t next = 0;
  for (const Operation& op : graph.operations) {
    if (op.communication) next = std::max(next, op.communication->transfer + 1);
  }
  return next;
}

// Says how a transfer with members in several classes is cut.
struct JointCut {
  std::int64_t parts = 1;
  bool growing = false;
  std::int32_t next_number = 0;  // of the second part; the others follow
  std::int32_t axis = kTokenAxis;
};

class OperationCutter {
 public:
  OperationCutter(const StepGraph& whole, const std::vector<std::int32_t>& parts, const std::vector<std::int32_t>& axes)
      : whole_(whole), parts_(parts), axes_(axes), next_number_(numbers_in_use(whole)) {}

  void append(const Operation& op, std::vector<Operation>& result) {
    const JointCut cut = cut_of(op);
    if (cut.parts == 1) {
      result.push_back(op);
      return;
    }
    const OpId origin = op.origins.front().operation;
    for (std::int64_t i = 0; i < cut.parts; ++i) {
      const Origin piece = piece_of(origin, cut, i);
      Operation part = is_own_piece(piece) ? reading_own_shard(whole_, op) : op;
      part.origins = {piece};
      part.part = static_cast<std::int32_t>(i);
      part.key.dims[0] = part_size(whole_, whole_.op(origin), part.origins.front());
      if (part.communication) part.communication->bytes = {part.key.dims[0]};
      const ValueId handed = handed_on(op, part.origins.front());
      if (handed.valid()) part.reads.push_back({Operand::loads, handed});
      if (i > 0 && transfer_of(op) >= 0) {
        part.communication->transfer = cut.next_number + static_cast<std::int32_t>(i) - 1;
      }
      result.push_back(std::move(part));
    }
  }

 private:
  static Origin piece_of(OpId origin, const JointCut& cut, std::int64_t part) {
    if (!cut.growing) return {origin, cut.axis, part, part + 1, cut.parts};
    const std::int64_t begin = part == 0 ? 0 : pieces_of_growing(part), end = pieces_of_growing(part + 1);
    return {origin, cut.axis, begin, end, pieces_of_growing(cut.parts)};
  }

  static std::int32_t transfer_of(const Operation& op) { return op.communication ? op.communication->transfer : -1; }

  // Returns as many growing parts as are asked for, or 1.
  std::int64_t possible_growing_parts(OpId origin) const {
    const Operation& op = whole_.op(origin);
    const std::int64_t parts = -std::int64_t{parts_[origin.index()]};
    return !op.per_micro_batch && may_be_cut_into(whole_, op, pieces_of_growing(parts)) ? parts : 1;
  }

  // Returns as many parts as are asked for, or the next smaller number into which the operation can be cut.
  std::int64_t possible_parts(OpId origin, std::int32_t axis) const {
    std::int64_t parts = std::min<std::int64_t>(parts_[origin.index()], kMaxCuts);
    while (parts > 1 && !may_be_cut_into(whole_, whole_.op(origin), parts, axis)) --parts;
    return std::max<std::int64_t>(1, parts);
  }

  JointCut cut_of(const Operation& op) {
    if (op.origins.size() != 1 || !is_whole(op.origins.front()) || !may_be_cut(whole_, op)) return {};
    const std::int32_t transfer = transfer_of(op);
    if (const auto known = joint_.find(transfer); transfer >= 0 && known != joint_.end()) return known->second;
    const OpId origin = op.origins.front().operation;
    const std::int32_t axis = axes_.empty() ? kTokenAxis : axes_[origin.index()];
    const bool growing = parts_[origin.index()] < -1;
    const JointCut cut{growing ? possible_growing_parts(origin) : possible_parts(origin, axis), growing, next_number_,
                       axis};
    if (transfer >= 0) {
      joint_[transfer] = cut;
      next_number_ += static_cast<std::int32_t>(cut.parts) - 1;
    }
    return cut;
  }

  const StepGraph& whole_;
  const std::vector<std::int32_t>& parts_;
  const std::vector<std::int32_t>& axes_;
  std::int32_t next_number_;
  std::map<std::int32_t, JointCut> joint_;  // by transfer
};

}  // namespace

StepGraph cut_operations(const StepGraph& merged, const StepGraph& whole, const std::vector<std::int32_t>& parts,
                         const std::vector<std::int32_t>& axes) {
  StepGraph result;
  result.micro_batches = merged.micro_batches;
  result.tokens = merged.tokens;
  result.classes = merged.classes;
  result.links = merged.links;
  result.values = merged.values;
  result.operations.reserve(merged.operations.size());
  OperationCutter cutter(whole, parts, axes);
  for (const Operation& op : merged.operations) cutter.append(op, result.operations);
  return result;
}

}  // namespace weft
