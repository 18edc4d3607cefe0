#include "cost/operation_time.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "cost/kernel_time.hpp"

namespace weft {
namespace {

// The smallest key of a kind and phase, as OpKey orders them.
OpKey first_of(OpKind kind, Phase phase) {
  OpKey key;
  key.kind = kind;
  key.phase = phase;
  key.dtype = ElementType{};
  key.dims.fill(std::numeric_limits<std::int64_t>::min());
  return key;
}

template <class Visit>
void for_each_of_its_kind(const OpKey& key, const DeviceProfile& reached, Visit visit) {
  for (auto entry = reached.operations.lower_bound(first_of(key.kind, key.phase));
       entry != reached.operations.end() && entry->first.kind == key.kind && entry->first.phase == key.phase; ++entry) {
    visit(*entry);
  }
}

std::int64_t differing_dimensions(const OpKey& a, const OpKey& b) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < a.dims.size(); ++i) count += a.dims[i] != b.dims[i] ? 1 : 0;
  return count;
}

}  // namespace

const std::pair<const OpKey, Nanos>* nearest_measured(const OpKey& key, const Device& device,
                                                      const DeviceProfile& reached) {
  if (const auto exact = reached.operations.find(key); exact != reached.operations.end()) return &*exact;
  const std::pair<const OpKey, Nanos>* nearest = nullptr;
  std::tuple<bool, bool, std::int64_t, double> least;
  double own = 0;
  for_each_of_its_kind(key, reached, [&](const std::pair<const OpKey, Nanos>& entry) {
    const OpKey& other = entry.first;
    if (own == 0) own = kernel_seconds(key, device, reached);
    const double ratio = std::abs(std::log(kernel_seconds(other, device, reached) / own));
    const std::tuple distance(other.dtype != key.dtype, other.causal_half != key.causal_half,
                              differing_dimensions(key, other), ratio);
    if (nearest != nullptr && !(distance < least)) return;
    nearest = &entry;
    least = distance;
  });
  if (nearest != nullptr || key.phase != Phase::recompute) return nearest;
  OpKey forward = key;
  forward.phase = Phase::forward;
  return nearest_measured(forward, device, reached);
}

double operation_seconds(const OpKey& key, const Device& device, const DeviceProfile& reached) {
  const auto* measured = nearest_measured(key, device, reached);
  if (measured != nullptr && measured->first == key) return seconds(measured->second);
  const double modelled = kernel_seconds(key, device, reached);
  if (measured == nullptr) return modelled;
  const double nearest = kernel_seconds(measured->first, device, reached);
  return nearest > 0 ? seconds(measured->second) * modelled / nearest : modelled;
}

// Uses the best rate that any operation of the kind reached: the fused kernel is no faster than that.
double least_fused_seconds(const OpKey& key, const Device& device, const DeviceProfile& reached) {
  double rate = 1;
  bool measured = false;
  for_each_of_its_kind(key, reached, [&](const std::pair<const OpKey, Nanos>& entry) {
    const double modelled = kernel_seconds(entry.first, device, reached);
    if (!(modelled > 0)) return;
    const double own = seconds(entry.second) / modelled;
    rate = measured ? std::min(rate, own) : own;
    measured = true;
  });
  return rate * std::max(0.0, kernel_seconds(key, device, reached) - seconds(reached.kernel_gap));
}

}  // namespace weft
