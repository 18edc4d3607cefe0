// The dimensions in an operation's key agree with the values it reads and writes.
#include <algorithm>
#include <limits>

#include "base/checked.hpp"
#include "graph/operation_part.hpp"
#include "graph/verify/rules.hpp"

namespace weft {
namespace {

class ShapeRules {
 public:
  ShapeRules(const StepGraph& graph, Operation op) : graph_(graph), op_(std::move(op)), dims_(op_.key.dims) {}

  void verify() const {
    for (const std::int64_t n : dims_) {
      if (n < 0) reject(graph_, op_, "its key has the negative dimension {}", n);
    }
    switch (op_.key.kind) {
      case OpKind::gemm:
        return gemm();
      case OpKind::attention:
        return attention();
      case OpKind::norm:
        return norm();
      case OpKind::elementwise:
        return elementwise();
      case OpKind::gather_rows:
        return touches_one_of(product({dims_[0], dims_[1]}));
      case OpKind::cross_entropy:
        return touches_one_of(product({dims_[0], dims_[1]}));
      case OpKind::gate:
        return gate();
      case OpKind::adam:
        return adam();
      case OpKind::square_sum:
        return equal("elements read", read(op_.role == Role::task ? ValueKind::parameter : ValueKind::gradient),
                     dims_[0]);
      case OpKind::encode:
        return encode();
      case OpKind::decode:
        return decode();
      case OpKind::low_rank:
        return low_rank();
      case OpKind::curvature:
        return curvature();
      case OpKind::inverse:
        return inverse();
      case OpKind::precondition:
        return precondition();
      case OpKind::task:
        return;
      case OpKind::transfer:
        return;  // verify_transfers
    }
  }

 private:
  std::int64_t product(std::initializer_list<std::int64_t> factors) const {
    return checked_product(factors, name_of(op_.role));
  }

  std::int64_t read(ValueKind kind) const {
    std::int64_t sum = 0;
    for (const Read& r : op_.reads) {
      if (graph_.value(r.value).kind == kind) sum += graph_.value(r.value).elements();
    }
    return sum;
  }

  std::int64_t written(Operand operand) const { return graph_.value(write_of(op_, operand)).elements(); }

  std::int64_t written() const {
    std::int64_t sum = 0;
    for (const Write& write : op_.writes) sum += graph_.value(write.value).elements();
    return sum;
  }

  void equal(const char* what, std::int64_t found, std::int64_t expected) const {
    if (found != expected) {
      reject(graph_, op_, "{} are {}, but its key ({} {}x{}x{}x{}) implies {}", what, found, name_of(op_.key.kind),
             dims_[0], dims_[1], dims_[2], dims_[3], expected);
    }
  }

  void within(const char* what, std::int64_t found, std::int64_t low, std::int64_t high) const {
    if (found < low || found > high) {
      reject(graph_, op_, "{} are {}, but its key ({} {}x{}x{}x{}) implies {} to {}", what, found,
             name_of(op_.key.kind), dims_[0], dims_[1], dims_[2], dims_[3], low, high);
    }
  }

  // Shards of ZeRO are padded to whole elements.
  std::int64_t padding() const {
    const RankClass& c = graph_.classes[op_.rank_class.index()];
    return std::max(c.group(GroupKind::dp).view.size, c.group(GroupKind::edp).view.size) - 1;
  }

  // A parameter holds the matrix and what belongs to it: biases, a gate.
  void weights(const char* what, std::int64_t found, std::int64_t in, std::int64_t out, std::int64_t count) const {
    const std::int64_t matrix = product({in, out, count});
    within(what, found, matrix, matrix + count * (2 * out + in) + padding());
  }

  void gemm() const {
    const auto [rows, columns, inner, count, unused1, unused2] = dims_;
    const std::int64_t values = read(ValueKind::activation), grads = read(ValueKind::activation_grad);
    if (op_.phase == Phase::weight_grad) {  // rows: in, columns: out, inner: tokens
      equal("inputs read", values, product({rows, inner, count}));
      equal("gradients read", grads, product({inner, columns, count}));
      weights("gradients written", written(), rows, columns, count);
      return;
    }
    const bool backward = op_.phase == Phase::input_grad;
    equal("elements written", written(), product({rows, columns, count}));
    weights("weights read", read(ValueKind::parameter), backward ? columns : inner, backward ? inner : columns, count);
    if (!backward) {
      equal("inputs read", values, product({rows, inner, count}));
      return;
    }
    // The product may be added onto a gradient that is there already.
    const std::int64_t from = product({rows, inner, count}), onto = product({rows, columns, count});
    if (grads != from + onto) equal("gradients read", grads, from);
  }

  void attention() const {
    const std::int64_t queries = product({dims_[0], dims_[1], dims_[2], dims_[4]});
    const std::int64_t context = product({dims_[0], dims_[1], dims_[2], dims_[5]});
    constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
    within("queries, keys and values", read(ValueKind::activation), queries, kAny);
    if (op_.phase == Phase::input_grad) {
      equal("gradients read", read(ValueKind::activation_grad), context);
      within("gradients written", written(), queries, kAny);
    } else {
      equal("elements of its output", written(Operand::output), context);
    }
  }

  void norm() const {
    const std::int64_t elements = product({dims_[0], dims_[1]}), columns = dims_[1];
    equal("inputs read", read(ValueKind::activation), elements);
    if (op_.phase == Phase::weight_grad) {
      equal("gradients read", read(ValueKind::activation_grad), elements);
      within("gradients written", written(), columns, 2 * columns + padding());
      return;
    }
    equal("elements written", written(), elements);
    within("weights read", read(ValueKind::parameter), columns, 2 * columns + padding());
    if (op_.phase != Phase::input_grad) return;
    const std::int64_t grads = read(ValueKind::activation_grad);  // and the residual branch's
    if (grads != 2 * elements) equal("gradients read", grads, elements);
  }

  void elementwise() const {
    if (op_.phase == Phase::weight_grad) {
      equal("gradients read", read(ValueKind::activation_grad), dims_[0]);
      return;
    }
    if (op_.role == Role::kv_gather || op_.role == Role::kv_reduce) {
      equal("elements read", read(ValueKind::activation) + read(ValueKind::activation_grad), dims_[0]);
      equal("elements written", written(), dims_[0]);
      return;
    }
    if (op_.role == Role::param_keep) {
      equal("elements kept", written(Operand::weight), dims_[0]);
      const std::int64_t ranks = graph_.classes[op_.rank_class.index()].group(GroupKind::secondary).view.size;
      return within("elements read", read(Operand::weight), (dims_[0] - 1) * ranks + 1, dims_[0] * ranks + padding());
    }
    const bool backward = op_.phase == Phase::input_grad;
    const std::int64_t found = written(backward ? Operand::input_grad : Operand::output);
    const bool gated = backward && found == 2 * dims_[0];  // SwiGLU's dX has two halves
    if (!gated) equal("elements of its result", found, dims_[0]);
  }

  // Scores in, a slot and a weight for each choice out; back, a gradient for each weight in and for each score out.
  void gate() const {
    const std::int64_t scores = product({dims_[0], dims_[1]}), choices = product({dims_[0], dims_[2]});
    const std::int64_t load = product({2, dims_[1]});
    if (op_.phase == Phase::input_grad) {
      equal("gradients read", read(ValueKind::activation_grad), choices);
      equal("values read", read(ValueKind::activation), scores + 2 * choices + load);
      equal("gradients written", written(), scores);
    } else {
      equal("scores read", read(Operand::input), scores);
      if (find_read(op_, Operand::loads).valid()) equal("loads read", read(Operand::loads), load);
      equal("elements written", written(), 2 * choices + load);
    }
  }

  // One of the values read or written has this many elements.
  void touches_one_of(std::int64_t elements) const {
    const auto fits = [&](const auto& touch) { return graph_.value(touch.value).elements() == elements; };
    if (std::any_of(op_.writes.begin(), op_.writes.end(), fits)) return;
    if (std::any_of(op_.reads.begin(), op_.reads.end(), fits)) return;
    reject(graph_, op_, "no value it reads or writes has the {} elements of its key", elements);
  }

  void require_format() const {
    if (dims_[1] < 1 || dims_[1] >= kCompressionFormats) {
      reject(graph_, op_, "its key names the compression format {}, and there are 1 to {}", dims_[1],
             kCompressionFormats - 1);
    }
    if (dims_[2] < 1) reject(graph_, op_, "its key has {} shards", dims_[2]);
  }

  std::int64_t read(Operand operand) const { return graph_.value(read_of(op_, operand)).elements(); }

  void encode() const {
    require_format();
    const bool of_weights = op_.role == Role::param_encode;
    equal(of_weights ? "weights read" : "gradients read", read(of_weights ? Operand::weight : Operand::gradient),
          dims_[0]);
    if (!of_weights && !op_.per_micro_batch) {
      equal("errors read", read(Operand::compression_error), dims_[0]);
      equal("errors written", written(Operand::compression_error), dims_[0]);
    }
    equal("bytes written", written(Operand::encoded),
          encoded_shards(compression_of(op_.key), dims_[0], dims_[2]).value);
  }

  void decode() const {
    require_format();
    const bool of_weights = op_.role == Role::param_decode;
    equal(of_weights ? "weights written" : "gradients written",
          written(of_weights ? Operand::weight : Operand::gradient), dims_[0]);
    equal("bytes read", read(Operand::encoded),
          product({dims_[3], encoded_shards(compression_of(op_.key), dims_[0], dims_[2]).value}));
  }

  void low_rank() const {
    if (dims_[1] < 1) reject(graph_, op_, "its key has the rank {}", dims_[1]);
    const std::int64_t left = dims_[2], right = dims_[3];
    equal("gradients read", read(Operand::gradient), dims_[0]);
    equal("errors read", read(Operand::compression_error), dims_[0]);
    const bool decodes = op_.role == Role::grad_decode;
    const auto step = decodes                                  ? LowRankStep::product
                      : find_read(op_, Operand::basis).valid() ? LowRankStep::left
                                                               : LowRankStep::right;
    equal("steps", dims_[4], static_cast<std::int64_t>(step));
    switch (step) {
      case LowRankStep::left:
        equal("elements of the basis", read(Operand::basis), right);
        return equal("elements of left factors", written(Operand::encoded), left);
      case LowRankStep::right:
        equal("elements of summed left factors", read_as(Operand::encoded), left);
        equal("elements of left factors", written_as(Operand::left_factor), left);
        return equal("elements of right factors", written(Operand::encoded), right);
      case LowRankStep::product: {
        equal("elements of left factors", read(Operand::left_factor), left);
        equal("elements of summed right factors", read(Operand::encoded), right);
        equal("elements of the basis", written(Operand::basis), right);
        equal("errors written", written(Operand::compression_error), dims_[0]);
        // ZeRO 1 goes on with a shard.
        return within("gradients written", written(Operand::gradient), 1, dims_[0]);
      }
    }
  }

  // The elements of a value that may be missing.
  std::int64_t read_as(Operand operand) const {
    const ValueId found = find_read(op_, operand);
    return found.valid() ? graph_.value(found).elements() : 0;
  }
  std::int64_t written_as(Operand operand) const {
    const ValueId found = find_write(op_, operand);
    return found.valid() ? graph_.value(found).elements() : 0;
  }

  // K-FAC. A factor has a row for every input, or output, of a linear layer.
  void require_interval(std::int64_t steps) const {
    if (steps < 1) reject(graph_, op_, "its key computes it once in {} steps", steps);
  }
  void curvature() const {
    require_interval(dims_[2]);
    if (op_.reads.size() != 1) reject(graph_, op_, "reads {} values; curvature is of one", op_.reads.size());
    equal("elements read", graph_.value(op_.reads.front().value).elements(), product({dims_[0], dims_[1]}));
    equal("elements written", written(Operand::curvature), product({dims_[0], dims_[0]}));
  }
  void inverse() const {
    require_interval(dims_[1]);
    const std::int64_t elements = product({dims_[0], dims_[0]});
    equal("curvature read", read(Operand::curvature), elements);
    equal("averages read", read(Operand::factor), elements);
    equal("averages written", written(Operand::factor), elements);
    equal("elements of the inverse", written(Operand::inverse), elements);
  }
  void precondition() const {
    equal("elements of the outputs' inverse", read(Operand::output_inverse), product({dims_[0], dims_[0]}));
    equal("elements of the inputs' inverse", read(Operand::input_inverse), product({dims_[1], dims_[1]}));
    weights("gradients read", read(Operand::gradient), dims_[1], dims_[0], 1);
    equal("elements of the direction", written(Operand::direction), read(Operand::gradient));
  }

  // Directions are whole where ZeRO leaves the update a shard of the state: it follows its part of them.
  void adam() const {
    std::int64_t gradients = 0, directions = 0, ranks = 1;
    for (const Read& r : op_.reads) {
      const Value& value = graph_.value(r.value);
      if (r.operand == Operand::gradient) gradients += value.elements();
      if (r.operand == Operand::direction) directions += value.elements();
      const bool of_shard = r.operand == Operand::optimizer_state && !value.sharding.splits.empty();
      if (of_shard) ranks = graph_.classes[op_.rank_class].group(GroupKind::dp).view.size;
    }
    equal("gradients read", gradients, dims_[0]);
    within("elements of directions", directions, 0, product({dims_[0], ranks}));
    for (const Write& write : op_.writes) equal("elements written", graph_.value(write.value).elements(), dims_[0]);
  }

  const StepGraph& graph_;
  const Operation op_;
  const std::array<std::int64_t, 6>& dims_;
};

}  // namespace

void verify_shapes(const StepGraph& graph) {
  for (const Operation& op : graph.operations) {
    const bool cut = is_part(op) && op.per_micro_batch;
    ShapeRules(graph, cut ? with_all_rows(graph, op) : op).verify();
  }
}

}  // namespace weft
