// What ranks tell each other before the library makes communicators for them: to split one from the world all ranks
// must act in the same order, those that have no part in it too, and members must make the same calls.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "comm/call_check.hpp"
#include "comm/communicator.hpp"
#include "comm/exchange.hpp"

namespace weft {

// Whoever has a communicator of its own. The members of messages stand in ascending order, so that both directions
// share one.
struct NcclGroup {
  std::int64_t queue = 0;
  std::int64_t thread_blocks = 0;  // PreparedCall
  std::vector<std::int64_t> members;
  friend auto operator<=>(const NcclGroup&, const NcclGroup&) = default;
};
NcclGroup group_of(const PreparedCall& call);

struct NcclOffer {
  NcclGroup group;
  CallNote note;
  std::uint64_t form = 0;  // a hash of the WireForm that the rank would like
};

struct NcclAgreement {
  // The groups of a round have no member in common: one split makes all of them.
  std::vector<std::vector<NcclGroup>> rounds;
  std::vector<bool> same_form;  // by own call: whether all its members would like the same
};
// `own`: what this rank prepared, in order. Throws RunFailed where members prepared different calls.
NcclAgreement agree_on_calls(const std::vector<NcclOffer>& own, const Exchange& exchange);

}  // namespace weft
