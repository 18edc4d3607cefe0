#include "io/plan_conditions.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "cost/framework.hpp"
#include "io/json/json_reader.hpp"
#include "io/profile_json.hpp"

namespace weft {
namespace {

const std::vector<std::string> kCollectiveModels{"efficiency", "model"};  // as --nccl takes them
const std::vector<std::string> kMovers{"library", "auto"};                // as --movers takes them

// Leaves out what no device and no level of the cluster asks for. Devices without figures of their own get those that
// stand in for them, so that nothing depends on constants that come with Weft.
Profile of_cluster(Profile profile, const ClusterSpec& cluster) {
  std::set<std::string> devices{cluster.device.name}, levels;
  for (const NodeOverride& node : cluster.overrides) {
    if (node.device) devices.insert(node.device->name);
  }
  for (const LevelSpec& level : cluster.levels) levels.insert(level.name);
  const auto keep_levels = [&](auto& links) {
    std::erase_if(links, [&](const auto& link) { return !levels.contains(link.first); });
  };
  std::map<std::string, DeviceProfile, std::less<>> own;
  for (const std::string& name : devices) keep_levels((own[name] = profile.device(name)).links);
  profile.devices = std::move(own);
  keep_levels(profile.links);
  profile.machine.reset();
  return profile;
}

}  // namespace

nlohmann::ordered_json conditions_to_json(const PlanConditions& conditions, const ClusterSpec& cluster) {
  const Profile& profile = conditions.profile;
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!conditions.flags.empty()) json["flags"] = conditions.flags;
  json["collective_times"] = kCollectiveModels[static_cast<std::size_t>(profile.collective_model)];
  json["movers"] = kMovers[static_cast<std::size_t>(profile.movers)];
  if (conditions.userbuffers) json["userbuffers"] = true;
  if (!conditions.launch_flags.empty()) json["launch_flags"] = conditions.launch_flags;
  json["profile"] = profile_to_json(of_cluster(profile, cluster));
  return json;
}

PlanConditions conditions_from_json(const nlohmann::json& value, const std::string& where) {
  const JsonObject object(value, where);
  object.allow_only(
      std::array<std::string, 6>{"flags", "collective_times", "movers", "userbuffers", "launch_flags", "profile"});
  PlanConditions conditions;
  conditions.flags = object.string_or("flags", "");
  if (object.has("launch_flags")) conditions.launch_flags = object.strings("launch_flags");
  conditions.userbuffers = object.boolean_or("userbuffers", false);
  const JsonObject stored = object.object("profile");
  // Nothing but what the file says: constants that come with Weft may change.
  Profile base;
  if (stored.has("framework")) {
    const std::string name = stored.object("framework").string("name");
    base.framework = std::make_shared<const Framework>(framework_named(name));
  }
  conditions.profile = profile_from_json(value.at("profile"), stored.where(), std::move(base));
  conditions.profile.collective_model =
      static_cast<CollectiveModel>(object.one_of("collective_times", kCollectiveModels));
  conditions.profile.movers = static_cast<MoverWish>(object.one_of("movers", kMovers));
  // Other devices and levels have what comes with Weft: a change of the cluster may ask for them.
  const Profile known = default_profile();
  conditions.profile.devices.insert(known.devices.begin(), known.devices.end());
  conditions.profile.links.insert(known.links.begin(), known.links.end());
  return conditions;
}

}  // namespace weft
