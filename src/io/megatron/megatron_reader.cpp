#include "io/megatron/megatron_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "base/text.hpp"
#include "io/megatron/megatron_flag_names.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxNumber = 1'000'000'000;

const char* reason_of(MegatronFlagUse use) {
  switch (use) {
    case MegatronFlagUse::run:
    case MegatronFlagUse::model:
      return "does not change the step";
    case MegatronFlagUse::kernels:
      return "below what the cost model tells apart";
    case MegatronFlagUse::unmodelled:
      return "Weft has no counterpart";
  }
  return "";
}

}  // namespace

MegatronReader::MegatronReader(const std::vector<LaunchFlag>& flags, std::string file) : file_(std::move(file)) {
  for (const LaunchFlag& flag : flags) {
    LaunchFlag kept = flag;
    // "$@" and the like behind a value belong to the command, not to the flag.
    for (std::size_t i = 1; i < kept.values.size();) {
      if (kept.values[i].starts_with("$")) {
        strays_.emplace_back(flag.name, kept.values[i]);
        kept.values.erase(kept.values.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    const auto [it, added] = by_name_.try_emplace(flag.name, flags_.size());
    if (added) {
      flags_.push_back(std::move(kept));
    } else {
      flags_[it->second] = std::move(kept);
    }
  }
}

const LaunchFlag* MegatronReader::find(const std::string& name) {
  asked_.insert(name);
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &flags_[found->second];
}

std::string MegatronReader::where(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return fmt::format("{}: without {}", file_, name);
  return fmt::format("{}: line {}: {}", file_, flags_[found->second].line, name);
}

bool MegatronReader::is_set(const std::string& name) {
  const LaunchFlag* flag = find(name);
  if (!flag) return false;
  if (!flag->values.empty()) {
    const std::string& value = flag->values.front();
    if (!value.starts_with("$")) fail("{}: takes no value, but '{}' follows", where(name), value);
    strays_.emplace_back(name, value);
    flags_[by_name_.at(name)].values.clear();
  }
  return true;
}

std::optional<std::string> MegatronReader::text(const std::string& name) {
  const LaunchFlag* flag = find(name);
  if (!flag) return std::nullopt;
  if (flag->values.empty()) fail("{}: needs a value", where(name));
  if (flag->values.size() > 1) {
    fail("{}: takes one value, but {} follow: {}", where(name), flag->values.size(), fmt::join(flag->values, " "));
  }
  const std::string& value = flag->values.front();
  if (value.find('$') != std::string::npos) {
    fail("{} '{}': the file does not say what this is; set the variable there, or give the flag of weft plan",
         where(name), value);
  }
  return value;
}

std::optional<std::int64_t> MegatronReader::integer(const std::string& name, std::int64_t min) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const std::int64_t number = parse_integer(*value, where(name));
  if (number < min || number > kMaxNumber) fail("{} {}: is not in {}..{}", where(name), number, min, kMaxNumber);
  return number;
}

std::optional<double> MegatronReader::number(const std::string& name) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  double number = 0;
  const char* end = value->data() + value->size();
  const auto [stop, status] = std::from_chars(value->data(), end, number);
  if (status != std::errc{} || stop != end || !(number >= 0 && number <= 1e9)) {
    fail("{} '{}': is not a number in 0..1e9", where(name), *value);
  }
  return number;
}

std::optional<std::string> MegatronReader::one_of(const std::string& name, const std::vector<std::string>& allowed) {
  const auto value = text(name);
  if (value && std::find(allowed.begin(), allowed.end(), *value) == allowed.end()) {
    fail("{} '{}': is not one of {}", where(name), *value, fmt::join(allowed, ", "));
  }
  return value;
}

std::vector<std::string> MegatronReader::list(const std::string& name) {
  const LaunchFlag* flag = find(name);
  return flag ? flag->values : std::vector<std::string>{};
}

void MegatronReader::note(const std::string& name, const std::string& reason) {
  notes_[name].push_back(reason);
}

std::vector<IgnoredFlag> MegatronReader::ignored() const {
  std::vector<std::string> known(asked_.begin(), asked_.end());
  std::map<std::string, MegatronFlagUse> unused;
  for (const MegatronFlagName& flag : unused_megatron_flags()) {
    known.push_back(flag.name);
    unused.emplace(flag.name, flag.use);
  }
  std::vector<IgnoredFlag> result;
  for (const LaunchFlag& flag : flags_) {
    const std::string value = fmt::format("{}", fmt::join(flag.values, " "));
    if (const auto noted = notes_.find(flag.name); noted != notes_.end()) {
      for (const std::string& reason : noted->second) result.push_back({flag.name, value, reason});
    } else if (const auto found = unused.find(flag.name); found != unused.end()) {
      result.push_back({flag.name, value, reason_of(found->second), found->second != MegatronFlagUse::unmodelled,
                        found->second == MegatronFlagUse::model});
    } else if (!asked_.contains(flag.name)) {
      const std::string nearest = nearest_name(flag.name, known);
      result.push_back(
          {flag.name, value, "is not known" + (nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest))});
    }
    for (const auto& [before, stray] : strays_) {
      if (before == flag.name) result.push_back({stray, "", "is not set in the file"});
    }
  }
  for (const auto& [name, reasons] : notes_) {  // about what is absent
    if (by_name_.contains(name)) continue;
    for (const std::string& reason : reasons) result.push_back({name, "", reason});
  }
  return result;
}

}  // namespace weft
