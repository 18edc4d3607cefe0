#include "exec/checkpoint/run_identity.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "exec/checkpoint/crc32.hpp"
#include "exec/settings_json.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kSample = 1 << 20, kSamples = 64;

// "model/name" is not among them: the same shape may have been given a name.
constexpr const char* kMustAgree[] = {"/model", "/optimizer/name", "/optimizer/momentum", "/seed",   "/global_batch",
                                      "/seq",   "/data/bytes",     "/data/crc32",         "/dropout"};
constexpr const char* kMayChange[] = {"/optimizer/lr",
                                      "/optimizer/betas",
                                      "/optimizer/eps",
                                      "/optimizer/weight_decay",
                                      "/clip_grad",
                                      "/lr_schedule",
                                      "/optimizer/kfac/lr",
                                      "/optimizer/kfac/momentum",
                                      "/optimizer/kfac/decay",
                                      "/optimizer/kfac/damping",
                                      "/optimizer/kfac/interval"};

ordered_json at(const ordered_json& json, const std::string& path) {
  const ordered_json::json_pointer pointer(path);
  return json.contains(pointer) ? json.at(pointer) : ordered_json();
}

std::string words_of(const std::string& path) {
  std::string words = path.substr(1);
  std::ranges::replace(words, '/', ' ');
  return words;
}

// The first key whose value differs.
std::string conflict_in(const std::string& path, const ordered_json& saved, const ordered_json& here) {
  if (saved == here || path == "/model/name") return "";
  if (saved.is_object() && here.is_object()) {
    for (const auto& [key, value] : here.items()) {
      std::string words = conflict_in(path + "/" + key, saved.contains(key) ? saved.at(key) : ordered_json(), value);
      if (!words.empty()) return words;
    }
    for (const auto& [key, value] : saved.items()) {
      if (!here.contains(key)) return conflict_in(path + "/" + key, value, ordered_json());
    }
    return "";
  }
  return fmt::format("{} is {} there, {} here", words_of(path), json_text(saved), json_text(here));
}

}  // namespace

std::uint32_t checksum_of_text(std::span<const std::uint8_t> text) {
  if (text.size() <= kSample * kSamples) return crc32(text.data(), text.size());
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kSamples; ++i) {
    const std::size_t begin = (text.size() - kSample) / (kSamples - 1) * i;
    sum = crc32(text.data() + begin, kSample, sum);
  }
  return sum;
}

std::string run_identity(const Transformer& model, const Layout& layout, const TrainSettings& settings,
                         const Corpus& corpus) {
  ordered_json identity = {
      {"model", shape_to_json(model)},
      {"optimizer", optimizer_to_json(settings.of_optimizer(layout.kfac_interval))},
      {"clip_grad", layout.clip_grad},
      {"seed", settings.seed},
      {"global_batch", layout.global_batch},
      {"seq", layout.seq},
      {"dropout", dropout_to_json(model, layout)},
      {"data",
       {{"name", corpus.name()}, {"bytes", corpus.bytes().size()}, {"crc32", checksum_of_text(corpus.bytes())}}},
      {"layout",
       {{"tp", layout.tp},
        {"cp", layout.cp},
        {"pp", layout.pp},
        {"vpp", layout.vpp},
        {"dp", layout.dp},
        {"zero", layout.zero},
        {"micro_batch", layout.micro_batch}}}};
  // Named only where there is one: checkpoints from before it existed stay what they are.
  if (layout.layer_group > 1) identity["layout"]["layer_group"] = layout.layer_group;
  if (layout.reduce_every != 0) identity["layout"]["reduce_every"] = reduce_every_in_words(layout);
  if (layout.has_slices()) identity["layout"]["slice_tokens"] = layout.slice_tokens;
  if (layout.warm_up_depth > 0) identity["layout"]["warm_up_depth"] = layout.warm_up_depth;
  if (layout.zero_shards > 0) identity["layout"]["zero_shards"] = layout.zero_shards;
  if (layout.zero_secondary > 0) identity["layout"]["zero_secondary"] = layout.zero_secondary;
  if (settings.schedule != LearningRateSchedule{}) identity["lr_schedule"] = schedule_to_json(settings.schedule);
  return json_text(identity);
}

std::string with_policy(const std::string& identity, const std::string& policy) {
  ordered_json json = ordered_json::parse(identity);
  json["policy"] = policy;
  return json_text(json);
}

std::string policy_of(const std::string& identity) {
  const ordered_json policy = at(ordered_json::parse(identity), "/policy");
  return policy.is_string() ? policy.get<std::string>() : "";
}

std::string identity_conflict(const std::string& saved_text, const std::string& here_text) {
  const ordered_json saved = ordered_json::parse(saved_text), here = ordered_json::parse(here_text);
  for (const std::string path : kMustAgree) {
    std::string words = conflict_in(path, at(saved, path), at(here, path));
    if (!words.empty()) return words;
  }
  return "";
}

std::vector<std::string> identity_changes(const std::string& saved_text, const std::string& here_text) {
  const ordered_json saved = ordered_json::parse(saved_text), here = ordered_json::parse(here_text);
  std::vector<std::string> changes;
  for (const std::string path : kMayChange) {
    const ordered_json before = at(saved, path), now = at(here, path);
    if (before != now)
      changes.push_back(fmt::format("{} is {}, was {}", words_of(path), json_text(now), json_text(before)));
  }
  const ordered_json before = at(saved, "/layout/tp"), now = at(here, "/layout/tp");
  if (!at(here, "/optimizer/kfac").is_null() && before.is_number() && before > now) {
    changes.push_back(fmt::format(
        "--tp is {}, was {}: K-FAC's factors are those of larger parts of the layers now, and what relates the old "
        "parts to each other begins at zero",
        json_text(now), json_text(before)));
  }
  return changes;
}

}  // namespace weft
