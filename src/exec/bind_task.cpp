#include "exec/bind_task.hpp"

#include <chrono>

#include "base/error.hpp"

namespace weft {
namespace {

const ParameterState& parameter_with_weights(const ParameterStates& parameters, ValueId weights) {
  for (const ParameterState& p : parameters.all()) {
    if (p.weight == weights) return p;
  }
  WEFT_CHECK(false);
  return parameters.all().front();
}

}  // namespace

BoundOperation bind_task(const RankView& view, const ParameterStates& parameters, const Operation& op) {
  if (op.key.kind == OpKind::task) {
    return [duration = std::chrono::nanoseconds(op.key.dims[0])](Kernels&, std::int64_t) {
      using Clock = std::chrono::steady_clock;
      for (const Clock::time_point end = Clock::now() + duration; Clock::now() < end;) {
      }
    };
  }
  const ParameterState& p = parameter_with_weights(parameters, read_of(op, Operand::weight));
  return [weights = std::vector<Vector>{{view.data(p.weight), p.elements}},
          out = Vector{view.data(write_of(op, Operand::square_sum)), 1}](Kernels& kernels, std::int64_t) {
    kernels.square_sum(weights, out);
  };
}

}  // namespace weft
