#include "comm/paced_device/paced_device_world.hpp"

#include <fmt/format.h>

#include <atomic>

namespace weft {

PacedFabric::PacedFabric(PacedDevice& device, std::int64_t ranks)
    : signals_(device.share_with_host(sizeof(PacedSignals))),
      collectives_(device.share(2 * ranks * static_cast<std::int64_t>(sizeof(std::uint32_t)))) {}

PacedFabric::Group PacedFabric::group(int split, int color, const std::string& words, PacedDevice& device) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = groups_.try_emplace({split, color});
  if (is_new) {
    const auto number = static_cast<std::uint32_t>(groups_.size() - 1);
    found->second = {device.share(sizeof(PacedGroupMemory)), number, words};
  }
  return found->second;
}

bool PacedFabric::is_aborted() const {
  return std::atomic_ref(signals().aborted).load() != 0;
}

void PacedFabric::abort(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (why_aborted_.empty()) why_aborted_ = why;
  }
  std::atomic_ref(signals().aborted).store(1);
}

std::string PacedFabric::why_aborted() const {
  if (const std::string late = late_group(); !late.empty()) return late;
  const std::lock_guard lock(mutex_);
  return fmt::format("another rank has ended the collectives: {}", why_aborted_);
}

std::string PacedFabric::late_group() const {
  const std::uint32_t late = std::atomic_ref(signals().late_group).load();
  if (late == 0) return {};
  const std::lock_guard lock(mutex_);
  for (const auto& [key, group] : groups_) {
    if (group.number == late - 1)
      return fmt::format("a collective of {} has waited too long for a rank that did not come to it", group.words);
  }
  return "a collective has waited too long for a rank";
}

std::string PacedDeviceWorld::make_identity() {
  const std::lock_guard lock(mutex_);
  return std::to_string(identities_++);
}

std::shared_ptr<PacedFabric> PacedDeviceWorld::join(const std::string& identity, PacedDevice& device,
                                                    std::int64_t ranks) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<PacedFabric>& known = fabrics_[identity];
  std::shared_ptr<PacedFabric> fabric = known.lock();
  if (fabric == nullptr) known = fabric = std::make_shared<PacedFabric>(device, ranks);
  return fabric;
}

}  // namespace weft
