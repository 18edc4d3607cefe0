// The file of Megatron-LM's --nccl-communicator-config-path (docs/export.md): CTAs and priorities by process group.
#include <fmt/format.h>

#include <map>
#include <set>
#include <string>

#include "base/error.hpp"
#include "io/export/export_writers.hpp"

namespace weft {
namespace {

// Megatron's names of the process groups that carry a group's transfers.
std::set<std::string> process_groups(GroupKind group) {
  if (group == GroupKind::tp || group == GroupKind::kv) return {"tp"};
  if (group == GroupKind::cp) return {"cp"};
  if (group == GroupKind::dp || group == GroupKind::replica) return {"dp", "dp_cp"};
  if (group == GroupKind::shard) return {"dp", "intra_dp_cp"};
  if (group == GroupKind::ep) return {"ep"};
  if (group == GroupKind::etp) return {"ep_tp"};
  if (group == GroupKind::tied) return {"embd"};
  if (group == GroupKind::edp) return {"ep_dp"};
  if (group == GroupKind::pp_prev || group == GroupKind::pp_next) return {"pp"};
  return {};
}

struct GroupUse {
  bool beside_compute = false;
  bool of_layers = false;  // computation of the same micro-batch waits for it
};

std::map<std::string, GroupUse> uses_of_groups(const Plan& plan) {
  std::map<std::string, GroupUse> uses;
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    if (!op.is_transfer()) continue;
    for (const std::string& name : process_groups(op.communication->group)) {
      const bool of_layers = op.per_micro_batch && op.role != Role::grad_reduce && op.role != Role::param_gather;
      uses[name].beside_compute |= !plan.issues[id].blocking;
      uses[name].of_layers |= of_layers;
    }
  }
  return uses;
}

}  // namespace

void write_megatron_nccl(ExportSheet& sheet) {
  const std::int32_t blocks = sheet.plan().thread_blocks;
  // Where reductions of gradients run beside compute, what layers wait for goes first.
  const bool ranked = sheet.facts().reductions_beside_compute || sheet.facts().gathers_beside_compute;
  bool written = false;
  for (const auto& [name, use] : uses_of_groups(sheet.plan())) {
    const bool limited = blocks > 0 && use.beside_compute, first = ranked && use.of_layers;
    if (!limited && !first) continue;
    sheet.line(name + ":");
    if (limited) {
      sheet.line(fmt::format("  min_ctas: {}", blocks));
      sheet.line(fmt::format("  max_ctas: {}", blocks));
    }
    if (first) sheet.line("  is_high_priority_stream: true");
    written = true;
  }
  if (!written) {
    fail(
        "--to megatron-nccl: the plan has no thread blocks to limit, and no transfers of layers beside those of "
        "gradients");
  }
  sheet.carries({Feature::thread_blocks});
  sheet.warn("--nccl-communicator-config-path takes this file; --to megatron writes the other flags");
  if (blocks > 0) {
    sheet.warn("NCCL's zero-CTA collectives (NCCL_CTA_POLICY) fall back to CTAs where buffers are not registered");
  }
}

}  // namespace weft
