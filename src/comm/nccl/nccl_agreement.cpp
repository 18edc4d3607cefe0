#include "comm/nccl/nccl_agreement.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <type_traits>

#include "base/error.hpp"

namespace weft {
namespace {

static_assert(std::is_trivially_copyable_v<CallNote>);

template <class Plain>
void put(std::string& to, const Plain& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class Plain>
Plain take(std::string_view& from) {
  if (from.size() < sizeof(Plain)) throw RunFailed("the ranks' lists of NCCL calls cannot be read");
  Plain value;
  std::memcpy(&value, from.data(), sizeof(value));
  from.remove_prefix(sizeof(value));
  return value;
}

std::string text_of(const std::vector<NcclOffer>& offers) {
  std::string text;
  for (const NcclOffer& offer : offers) {
    put(text, offer.group.queue);
    put(text, offer.group.thread_blocks);
    put(text, std::ssize(offer.group.members));
    for (const std::int64_t member : offer.group.members) put(text, member);
    put(text, offer.note);
    put(text, offer.form);
  }
  return text;
}

std::vector<NcclOffer> offers_in(std::string_view text) {
  std::vector<NcclOffer> offers;
  while (!text.empty()) {
    NcclOffer& offer = offers.emplace_back();
    offer.group.queue = take<std::int64_t>(text);
    offer.group.thread_blocks = take<std::int64_t>(text);
    const auto members = take<std::ptrdiff_t>(text);
    for (std::ptrdiff_t i = 0; i < members; ++i) offer.group.members.push_back(take<std::int64_t>(text));
    offer.note = take<CallNote>(text);
    offer.form = take<std::uint64_t>(text);
  }
  return offers;
}

using OffersByGroup = std::map<NcclGroup, std::vector<NcclOffer>>;

OffersByGroup by_group(const std::vector<NcclOffer>& offers) {
  OffersByGroup groups;
  for (const NcclOffer& offer : offers) groups[offer.group].push_back(offer);
  return groups;
}

// Whether each call of a group has the same form on all members, by the call.
std::vector<bool> compare_members(const NcclGroup& group, const std::vector<OffersByGroup>& by_rank) {
  const std::int64_t first = group.members.front();
  const auto offers_of = [&](std::int64_t rank) {
    const auto found = by_rank[rank].find(group);
    return found != by_rank[rank].end() ? found->second : std::vector<NcclOffer>{};
  };
  const std::vector<NcclOffer> expected = offers_of(first);
  std::vector<bool> same_form(expected.size(), true);
  for (const std::int64_t rank : group.members) {
    const std::vector<NcclOffer> offers = offers_of(rank);
    for (std::size_t i = 0; i < std::max(offers.size(), expected.size()); ++i) {
      const auto words = [&](const std::vector<NcclOffer>& list) {
        return i < list.size() ? in_words(list[i].note) : std::string("nothing more");
      };
      if (i >= offers.size() || i >= expected.size() || !same_call(offers[i].note, expected[i].note)) {
        throw RunFailed(fmt::format("rank {} prepares {} on queue {}, but rank {} prepares {}", rank, words(offers),
                                    group.queue, first, words(expected)));
      }
      if (offers[i].form != expected[i].form) same_form[i] = false;
    }
  }
  return same_form;
}

std::vector<std::vector<NcclGroup>> rounds_of(std::set<NcclGroup> groups) {
  std::vector<std::vector<NcclGroup>> rounds;
  while (!groups.empty()) {
    std::vector<NcclGroup>& round = rounds.emplace_back();
    std::set<std::int64_t> busy;
    for (auto group = groups.begin(); group != groups.end();) {
      const auto is_busy = [&](std::int64_t rank) { return busy.contains(rank); };
      if (std::any_of(group->members.begin(), group->members.end(), is_busy)) {
        ++group;
        continue;
      }
      busy.insert(group->members.begin(), group->members.end());
      round.push_back(*group);
      group = groups.erase(group);
    }
  }
  return rounds;
}

}  // namespace

NcclGroup group_of(const PreparedCall& call) {
  NcclGroup group{call.queue, call.thread_blocks, call.members};
  if (call.spec.kind == Collective::send_recv) std::sort(group.members.begin(), group.members.end());
  return group;
}

NcclAgreement agree_on_calls(const std::vector<NcclOffer>& own, const Exchange& exchange) {
  std::vector<OffersByGroup> by_rank;
  std::set<NcclGroup> groups;
  for (const std::string& text : exchange(text_of(own))) {
    by_rank.push_back(by_group(offers_in(text)));
    for (const auto& [group, offers] : by_rank.back()) groups.insert(group);
  }
  NcclAgreement agreement;
  std::map<NcclGroup, std::vector<bool>> same_form;
  for (const NcclGroup& group : groups) {
    if (group.members.empty() || std::any_of(group.members.begin(), group.members.end(), [&](std::int64_t rank) {
          return rank < 0 || rank >= std::ssize(by_rank);
        })) {
      throw RunFailed(
          fmt::format("a call on queue {} has members that are not in 0..{}", group.queue, std::ssize(by_rank) - 1));
    }
    same_form[group] = compare_members(group, by_rank);
  }
  std::map<NcclGroup, std::size_t> next;
  for (const NcclOffer& offer : own) agreement.same_form.push_back(same_form[offer.group][next[offer.group]++]);
  agreement.rounds = rounds_of(std::move(groups));
  return agreement;
}

}  // namespace weft
