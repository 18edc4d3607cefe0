#include "comm/trouble.hpp"

#include <fmt/format.h>

namespace weft {
namespace {

// A longer silence is named in a timeout, and after waiting longer than this a silent rank is suspected.
constexpr std::chrono::seconds kSuspiciousSilence{1};

double in_seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

std::optional<LostRank> Trouble::lost() const {
  return health_ != nullptr ? health_->lost() : std::nullopt;
}

std::chrono::nanoseconds Trouble::silence(std::int64_t rank) const {
  return health_ != nullptr ? health_->silence(rank) : std::chrono::nanoseconds{};
}

std::string Trouble::at(const std::string& call) const {
  const RankPlace place = whereabouts_.now();
  return place.part.empty() ? call : fmt::format("{}, {}", place.part, call);
}

std::optional<std::string> Trouble::of_waiting(const std::string& call, const std::string& awaited,
                                               std::chrono::nanoseconds waited) {
  if (waited >= kSuspiciousSilence) give_up_silent();
  if (auto words = loss(at(call), awaited)) return words;
  if (waited < patience_.timeout) return std::nullopt;
  return fmt::format("{}: rank {} has waited {:.1f} s for {}{}", at(call), rank_, in_seconds(waited), awaited,
                     silent_words());
}

std::optional<std::string> Trouble::of_library(const std::string& call) {
  give_up_silent();
  if (auto words = loss(at(call), "")) return words;
  for (std::int64_t rank = 0; rank < size_; ++rank) {
    if (silence(rank) < patience_.timeout) continue;
    return fmt::format("{}: rank {} waits inside the library{}", at(call), rank_, silent_words());
  }
  return std::nullopt;
}

std::optional<std::string> Trouble::of_idle() {
  if (!whereabouts_.known()) return std::nullopt;
  const std::optional<LostRank> silent = silent_rank();
  if (!silent && !lost()) return std::nullopt;
  const RankPlace place = whereabouts_.now();
  if (silent && place.waits_outside_calls) health_->declare_lost(*silent);
  return loss(place.doing.empty() ? place.part : fmt::format("{}, {}", place.part, place.doing), "");
}

std::optional<LostRank> Trouble::silent_rank() const {
  if (health_ == nullptr || patience_.silence.count() == 0) return std::nullopt;
  for (std::int64_t rank = 0; rank < size_; ++rank) {
    const std::chrono::nanoseconds silent_for = silence(rank);
    if (silent_for < patience_.silence) continue;
    return LostRank{rank, fmt::format("it stands still: no sign of life for {:.1f} s", in_seconds(silent_for))};
  }
  return std::nullopt;
}

// All ranks need each other, so a rank that waits for any other finally waits for the silent one.
void Trouble::give_up_silent() {
  if (const std::optional<LostRank> silent = silent_rank()) health_->declare_lost(*silent);
}

std::optional<std::string> Trouble::loss(const std::string& where, const std::string& awaited) {
  const std::optional<LostRank> first = lost();
  if (!first) return std::nullopt;
  return fmt::format("rank {} was lost ({}) while rank {} was in {}{}", first->rank, first->reason, rank_, where,
                     awaited.empty() ? "" : fmt::format(", waiting for {}", awaited));
}

std::string Trouble::silent_words() const {
  std::string words;
  for (std::int64_t rank = 0; rank < size_; ++rank) {
    const std::chrono::nanoseconds silent_for = silence(rank);
    if (silent_for > kSuspiciousSilence)
      words += fmt::format("; rank {} has given no sign of life for {:.1f} s", rank, in_seconds(silent_for));
  }
  return words;
}

}  // namespace weft
