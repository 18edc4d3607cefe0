#include "planner/policy/megatron_options.hpp"

#include "base/error.hpp"

namespace weft {
namespace {

constexpr const char* kExpertOverlap = "--overlap-moe-expert-parallel-comm";

void require_userbuffers(const Layout& layout) {
  if (layout.tp == 1) fail("--tp-comm-overlap: there is no tensor parallelism; give --tp");
  if (!layout.sequence_parallel) fail("--tp-comm-overlap: needs --sequence-parallel, as in Megatron");
}

void require_pairs(const Layout& layout) {
  if (layout.ep == 1) fail("{}: there is no expert parallelism; give --ep", kExpertOverlap);
  if (!layout.experts_exchange_slots()) {
    fail(
        "{}: is for all-to-alls, as in Megatron (--moe-token-dispatcher-type alltoall or flex), not for "
        "--expert-exchange gathered",
        kExpertOverlap);
  }
  if (layout.pp > 1 && layout.vpp == 1) fail("{}: a pipeline needs --vpp for it, as in Megatron", kExpertOverlap);
  if (!may_pair(layout) || row_of(layout.schedule).splits_backward) {
    fail("{}: is not for --schedule {}", kExpertOverlap, name_of(layout.schedule));
  }
  if (layout.recompute == Recompute::full) fail("{}: is not for --recompute full, as in Megatron", kExpertOverlap);
  if (layout.zero > 1) fail("{}: is for --zero 0 and 1", kExpertOverlap);
}

}  // namespace

void require_applicable(const PolicyOptions& options, const Layout& layout) {
  if (options.tp_comm_overlap) require_userbuffers(layout);
  if (options.overlap_moe_expert_parallel_comm) require_pairs(layout);
  if (options.delay_wgrad_compute && !options.overlap_moe_expert_parallel_comm) {
    fail("--delay-wgrad-compute: needs {}, as in Megatron", kExpertOverlap);
  }
}

PolicyOptions applicable_options(const PolicyOptions& options, const Layout& layout) {
  const auto allowed = [&](const PolicyOptions& one) {
    try {
      require_applicable(one, layout);
    } catch (const Error&) {
      return false;
    }
    return true;
  };
  PolicyOptions result = options;
  result.tp_comm_overlap = options.tp_comm_overlap && allowed({.tp_comm_overlap = true});
  result.overlap_moe_expert_parallel_comm =
      options.overlap_moe_expert_parallel_comm && allowed({.overlap_moe_expert_parallel_comm = true});
  result.delay_wgrad_compute = options.delay_wgrad_compute && result.overlap_moe_expert_parallel_comm;
  return result;
}

}  // namespace weft
