#include "planner/framework_memory.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

namespace weft {
namespace {

// What the operations of one class say of one micro-batch.
struct ClassSizes {
  double attention = 0, activation = 0, logits = 0;  // elements
  double parameters = 0;                             // whose gradients are accumulated
  double gathered = 0;                               // bytes of a tensor-parallel collective
  std::set<std::int32_t> layers;
};

ClassSizes sizes_of(const Plan& plan, ClassId rank_class) {
  ClassSizes sizes;
  for (const Operation& op : plan.graph.operations) {
    if (op.rank_class != rank_class || !op.per_micro_batch || op.phase != Phase::forward) continue;
    if (op.layer >= 0) sizes.layers.insert(op.layer);
    const auto d = [&](std::size_t i) { return static_cast<double>(op.key.dims[i]); };
    if (op.role == Role::attention) sizes.attention += d(0) * d(1) * d(2) * d(4);
    if (op.role == Role::ffn_act) sizes.activation += d(0);
    if (op.key.kind == OpKind::cross_entropy) sizes.logits += d(0) * d(1);
    if (op.communication && op.communication->group == GroupKind::tp) {
      sizes.gathered = std::max(sizes.gathered, static_cast<double>(op.communication->bytes.value));
    }
  }
  for (const Value& value : plan.graph.values) {
    if (value.rank_class == rank_class && value.kind == ValueKind::gradient && value.accumulated) {
      sizes.parameters += static_cast<double>(value.elements());
    }
  }
  return sizes;
}

}  // namespace

std::vector<MemoryTerm> framework_memory(const Framework& framework, const Plan& plan, ClassId rank_class,
                                         const MemoryUse& use) {
  const FrameworkMemory& memory = framework.memory;
  const ClassSizes sizes = sizes_of(plan, rank_class);
  const auto in_flight = static_cast<double>(std::max<std::int64_t>(1, use.peak.in_flight));
  const auto layers = static_cast<double>(std::min<std::int64_t>(std::ssize(sizes.layers), memory.layers_ahead));
  const bool copies = plan.layout.dp * plan.layout.cp > 1 && plan.layout.reduces_once_a_step();
  const double saved =
      in_flight * (memory.attention_bytes * sizes.attention + memory.activation_bytes * sizes.activation);
  const double loss = memory.logit_bytes * sizes.logits;
  const double under_way = memory.buffers_per_layer * layers * sizes.gathered;
  double held = saved + loss;
  for (const MemoryTerm& term : use.terms) {
    if (term.name == "activations" || term.name == "scratch") held += static_cast<double>(term.bytes.value);
  }
  std::vector<MemoryTerm> terms;
  const auto add = [&](const char* name, double bytes) {
    if (bytes > 0) terms.push_back({name, Bytes{static_cast<std::int64_t>(bytes)}});
  };
  add("saved beside", saved);
  add("loss", loss);
  add("gradient buckets", copies ? memory.bucket_bytes * sizes.parameters : 0);
  add("collectives under way", under_way);
  add("allocator", memory.fragmentation * held);
  std::stable_sort(terms.begin(), terms.end(),
                   [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes > b.bytes; });
  return terms;
}

// Needs are spread like a logarithmic normal distribution around the prediction.
std::optional<double> chance_of_fit(const Framework& framework, double share) {
  const double spread = framework.memory.spread;
  if (spread <= 0 || share <= 0) return std::nullopt;
  constexpr double kOddRuns = 0.01;  // that fit, or do not, whatever is predicted
  const double usual = 0.5 * std::erfc(std::log(share) / (spread * std::numbers::sqrt2));
  return kOddRuns + (1 - 2 * kOddRuns) * usual;
}

}  // namespace weft
