#include "study/run/tried_plans.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "study/run/agreed_plans.hpp"

namespace weft {

double TriedPlan::measured_s() const {
  WEFT_CHECK(!turns.empty());
  return std::accumulate(turns.begin(), turns.end(), 0.0) / static_cast<double>(turns.size());
}

std::string digest_without_name(const Plan& plan) {
  Plan unnamed = plan;
  unnamed.policy.clear();
  return plan_digest(unnamed);
}

std::size_t fastest_of(const std::deque<TriedPlan>& tried) {
  const auto fastest = std::ranges::min_element(tried, {}, &TriedPlan::measured_s);
  return static_cast<std::size_t>(fastest - tried.begin());
}

std::vector<std::size_t> too_close_to_call(const std::deque<TriedPlan>& tried, double spread, std::size_t most) {
  const double limit = (1 + spread) * tried[fastest_of(tried)].measured_s();
  std::vector<std::size_t> close;
  for (std::size_t i = 0; i < tried.size(); ++i) {
    if (tried[i].measured_s() <= limit) close.push_back(i);
  }
  std::ranges::stable_sort(close, {}, [&](std::size_t i) { return tried[i].measured_s(); });
  if (close.size() < 2) return {};
  close.resize(std::min(close.size(), most));
  return close;
}

std::vector<std::size_t> worth_a_trial(std::span<const PolicyStudy> predicted, const std::vector<std::string>& known,
                                       double best_s, std::size_t most) {
  std::vector<std::size_t> order(predicted.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return predicted[i].step_s; });
  std::vector<std::string> seen = known;
  std::vector<std::size_t> chosen;
  for (const std::size_t i : order) {
    if (chosen.size() == most || predicted[i].step_s > (1 + kWorthATrial) * best_s) break;
    if (!predicted[i].fits) continue;
    std::string digest = digest_without_name(predicted[i].plan());
    if (std::ranges::find(seen, digest) != seen.end()) continue;
    seen.push_back(std::move(digest));
    chosen.push_back(i);
  }
  return chosen;
}

Profile cautious(Profile profile, const Device& device) {
  DeviceProfile own = profile.device(device.name);
  own.compute_slowdown = 2 * own.compute_slowdown.value_or(device.compute_slowdown);
  own.transfer_slowdown = 2 * own.transfer_slowdown.value_or(device.transfer_slowdown);
  if (own.further_slowdown) *own.further_slowdown *= 2;
  profile.devices[device.name] = own;
  profile.library.at_once = 1;
  return profile;
}

}  // namespace weft
