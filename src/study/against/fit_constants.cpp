#include "study/against/fit_constants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utility>

#include "cost/framework.hpp"
#include "cost/measured_links.hpp"

namespace weft {
namespace {

constexpr double kLongestTime = 10;  // seconds; far above any of a host's

struct DeviceShare {
  const char* key;
  double DeviceProfile::* field;
};
constexpr std::array kDeviceShares{DeviceShare{"matrix_efficiency", &DeviceProfile::matrix_efficiency},
                                   DeviceShare{"batched_efficiency", &DeviceProfile::batched_efficiency},
                                   DeviceShare{"attention_efficiency", &DeviceProfile::attention_efficiency},
                                   DeviceShare{"memory_efficiency", &DeviceProfile::memory_efficiency}};

struct DeviceTime {
  const char* key;
  Nanos DeviceProfile::* field;
};
constexpr std::array kDeviceTimes{
    DeviceTime{"kernel_gap", &DeviceProfile::kernel_gap}, DeviceTime{"launch", &DeviceProfile::launch},
    DeviceTime{"transfer_launch", &DeviceProfile::transfer_launch}, DeviceTime{"resync", &DeviceProfile::resync}};

struct HostTime {
  const char* key;
  Nanos& (*field)(Framework& framework);
};
constexpr std::array kHostTimes{
    HostTime{"step", [](Framework& f) -> Nanos& { return f.optimizer.fixed; }},
    HostTime{"tensor_parallel_message", [](Framework& f) -> Nanos& { return f.tensor_parallel_message; }},
    HostTime{"check_per_member", [](Framework& f) -> Nanos& { return f.check_per_member; }},
    HostTime{"list_copy", [](Framework& f) -> Nanos& { return f.lists.copy; }}};

// The figures of one device, which a profile may so far only have by its default.
DeviceProfile& own_device(Profile& profile, const std::string& name) {
  return profile.devices.try_emplace(name, profile.device(name)).first->second;
}

void add_device(std::vector<FitConstant>& constants, const std::string& device) {
  for (const DeviceShare& share : kDeviceShares) {
    constants.push_back({fmt::format("{}.{}", device, share.key), 1.0,
                         [=](const Profile& p) { return p.device(device).*share.field; },
                         [=](Profile& p, double value) { own_device(p, device).*share.field = value; }});
  }
  for (const DeviceTime& time : kDeviceTimes) {
    constants.push_back(
        {fmt::format("{}.{}", device, time.key), kLongestTime,
         [=](const Profile& p) { return seconds(p.device(device).*time.field); },
         [=](Profile& p, double value) { own_device(p, device).*time.field = nanos_from_seconds(value); }});
  }
}

void add_level(std::vector<FitConstant>& constants, const std::string& device, const std::string& level) {
  constants.push_back({fmt::format("{}.links.{}", device, level), 1.0,
                       [=](const Profile& p) { return p.link(device, level, LinkTiming::nominal).best(); },
                       [=](Profile& p, double value) {
                         LinkProfile link = p.link(device, level, LinkTiming::nominal);
                         scale_links(link, value);
                         own_device(p, device).links[level] = std::move(link);
                       }});
}

void add_framework(std::vector<FitConstant>& constants) {
  for (const HostTime& time : kHostTimes) {
    constants.push_back({fmt::format("framework.{}", time.key), kLongestTime,
                         [=](const Profile& p) {
                           Framework framework = *p.framework;
                           return seconds(time.field(framework));
                         },
                         [=](Profile& p, double value) {
                           Framework framework = *p.framework;
                           time.field(framework) = nanos_from_seconds(value);
                           p.framework = std::make_shared<const Framework>(framework);
                         }});
  }
}

}  // namespace

std::vector<FitConstant> fit_constants(const Profile& profile, std::span<const Inputs> jobs) {
  std::set<std::pair<std::string, std::string>> levels;
  std::set<std::string> devices;
  for (const Inputs& job : jobs) {
    const std::string& device = job.cluster.device.name;
    devices.insert(device);
    if (job.cluster.execution.links != LinkTiming::nominal) continue;
    for (const LevelSpec& level : job.cluster.levels) levels.emplace(device, level.name);
  }
  std::vector<FitConstant> constants;
  for (const std::string& device : devices) {
    add_device(constants, device);
    for (const auto& [owner, level] : levels) {
      if (owner == device) add_level(constants, device, level);
    }
  }
  if (profile.framework) add_framework(constants);
  std::erase_if(constants, [&](const FitConstant& constant) { return constant.read(profile) <= 0; });
  return constants;
}

}  // namespace weft
