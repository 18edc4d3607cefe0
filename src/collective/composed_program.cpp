// Carries out legs one after the other on what the ranks hold by then and records that as one program. It does not know
// which collective the whole should be; the verifier checks that.
#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "collective/program_builder.hpp"
#include "collective/substitution.hpp"

namespace weft {
namespace {

// A piece that a rank holds and, where contributions to it are not added yet, whose contribution it is.
struct HeldPiece {
  std::int64_t piece = 0;
  std::int64_t copy = 0;
  friend auto operator<=>(const HeldPiece&, const HeldPiece&) = default;
};
using HeldPieces = std::map<HeldPiece, SlotRef>;

class LegComposer {
 public:
  LegComposer(Collective collective, std::int64_t ranks, LevelSizes levels)
      : inner_(levels.inner),
        middle_(levels.middle),
        top_(ranks / levels.inner / levels.middle),
        builder_("stages", {collective, ranks, 0, ranks}, /*in_place=*/false) {
    held_.resize(ranks);
    scratch_.assign(held_.size(), 0);
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      for (std::int64_t slot = 0; slot < input_slots(spec(), rank); ++slot) {
        at(rank)[{initial_content(spec(), rank, slot).piece, 0}] = {BufferKind::input, slot};
      }
      std::map<std::int64_t, std::int64_t>& outputs = wanted_.emplace_back();
      for (std::int64_t slot = 0; slot < output_slots(spec(), rank); ++slot) {
        outputs[required_content(spec(), rank, slot).piece] = slot;
      }
    }
  }

  // Returns false where the ranks do not hold what the leg works on.
  bool apply(const RuleLeg& leg) {
    if (leg.scope == Scope::self) return add_copies();
    for (const std::vector<std::int64_t>& group : groups(leg.scope)) {
      if (!carry_out(leg, group)) return false;
    }
    return true;
  }

  Program finish() && {
    for (std::int64_t rank = 0; rank < spec().ranks; ++rank) {
      for (const auto& [piece, slot] : wanted(rank)) {
        const auto found = at(rank).find({piece, 0});
        if (found != at(rank).end()) builder_.copy({rank, found->second}, output_of(rank, slot));
      }
    }
    return std::move(builder_).finish();
  }

 private:
  const CollectiveSpec& spec() const { return builder_.spec(); }
  // The pieces of a rank's output and their slots.
  const std::map<std::int64_t, std::int64_t>& wanted(std::int64_t rank) const { return wanted_[rank]; }
  HeldPieces& at(std::int64_t rank) { return held_[rank]; }

  std::vector<std::vector<std::int64_t>> groups(Scope scope) const {
    std::map<std::int64_t, std::vector<std::int64_t>> members;  // by group
    for (std::int64_t rank = 0; rank < spec().ranks; ++rank) members[group_of(rank, scope)].push_back(rank);
    std::vector<std::vector<std::int64_t>> result;
    for (auto& [group, ranks] : members) result.push_back(std::move(ranks));
    return result;
  }

  std::int64_t group_of(std::int64_t rank, Scope scope) const {
    switch (scope) {
      case Scope::inner:
        return rank / inner_;
      case Scope::outer:
        return rank % inner_;
      case Scope::middle:
        return rank / (inner_ * middle_) * inner_ + rank % inner_;
      case Scope::top:
        return rank % (inner_ * middle_);
      default:
        return 0;
    }
  }

  // Returns the rank that a piece is for (all_to_all), or that keeps it where the buffer is divided among all ranks.
  std::int64_t owner(std::int64_t piece) const {
    if (spec().kind == Collective::all_to_all) return piece % spec().ranks;
    if (spec().kind == Collective::all_reduce) {
      const std::int64_t top = piece % top_, middle = piece / top_ % middle_;
      return (top * middle_ + middle) * inner_ + piece / (top_ * middle_);
    }
    return piece;
  }
  // Whether `rank` is the one of its group in `scope` that keeps the piece.
  bool keeps(std::int64_t rank, Scope scope, std::int64_t piece) const {
    const std::int64_t kept_by = owner(piece);
    if (scope == Scope::inner) return rank % inner_ == kept_by % inner_;
    if (scope == Scope::outer) return rank / inner_ == kept_by / inner_;
    if (scope == Scope::middle) return rank / inner_ % middle_ == kept_by / inner_ % middle_;
    if (scope == Scope::top) return rank / (inner_ * middle_) == kept_by / (inner_ * middle_);
    return rank == kept_by;
  }

  SlotRef room(std::int64_t rank, const HeldPiece& what) {
    if (const auto known = at(rank).find(what); known != at(rank).end() && known->second.buffer != BufferKind::input) {
      return known->second;
    }
    const auto output = wanted(rank).find(what.piece);
    if (what.copy == 0 && output != wanted(rank).end()) return {BufferKind::output, output->second};
    return {BufferKind::scratch, scratch_[rank]++};
  }

  void copy(std::int64_t from, const HeldPiece& what, std::int64_t to, const HeldPiece& as) {
    const SlotRef place = room(to, as);
    builder_.copy({from, at(from).at(what)}, {to, place});
    at(to)[as] = place;
  }
  void add(std::int64_t from, const HeldPiece& what, std::int64_t to) {
    const SlotRef place = room(to, what);
    builder_.reduce({from, at(from).at(what)}, {to, at(to).at(what)}, {to, place}, 1);
    at(to)[what] = place;
  }

  static bool holds_same(const HeldPieces& a, const HeldPieces& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const auto& x, const auto& y) { return x.first == y.first; });
  }

  bool carry_out(const RuleLeg& leg, const std::vector<std::int64_t>& group) {
    std::vector<std::vector<HeldPiece>> before;
    for (const std::int64_t member : group) {
      std::vector<HeldPiece>& list = before.emplace_back();
      for (const auto& [what, slot] : at(member)) list.push_back(what);
    }
    const bool alike =
        std::all_of(group.begin(), group.end(), [&](std::int64_t m) { return holds_same(at(m), at(group.front())); });
    switch (leg.collective) {
      case Collective::reduce_scatter:
        return alike && reduce_scatter(group, leg.scope, before.front());
      case Collective::reduce:
        return alike && reduce(group, before.front());
      case Collective::all_reduce:
        return alike && reduce(group, before.front()) && spread(group, {group.front()}, {before.front()});
      case Collective::broadcast:
        if (leg.from_every_member) return apart(before) && spread(group, group, before);
        return spread(group, {group.front()}, {before.front()});
      case Collective::all_gather:
        return apart(before) && spread(group, group, before);
      case Collective::all_to_all:
        return exchange(group, leg.scope, before);
      case Collective::send_recv:
        return leg.from_every_member && send_what_is_asked_for(group, before);
      default:
        return false;
    }
  }

  // Every member must hold equally many pieces, and no piece may be at two members.
  static bool apart(const std::vector<std::vector<HeldPiece>>& lists) {
    std::vector<HeldPiece> all;
    for (const std::vector<HeldPiece>& list : lists) {
      if (list.size() != lists.front().size()) return false;
      all.insert(all.end(), list.begin(), list.end());
    }
    std::sort(all.begin(), all.end());
    return std::adjacent_find(all.begin(), all.end()) == all.end();
  }

  bool reduce_scatter(const std::vector<std::int64_t>& group, Scope scope, const std::vector<HeldPiece>& pieces) {
    for (const HeldPiece& what : pieces) {
      const auto keeper =
          std::find_if(group.begin(), group.end(), [&](std::int64_t m) { return keeps(m, scope, what.piece); });
      if (keeper == group.end()) return false;
      for (const std::int64_t member : group) {
        if (member == *keeper) continue;
        add(member, what, *keeper);
        at(member).erase(what);
      }
    }
    return true;
  }

  bool reduce(const std::vector<std::int64_t>& group, const std::vector<HeldPiece>& pieces) {
    for (const HeldPiece& what : pieces) {
      for (const std::int64_t member : group) {
        if (member == group.front()) continue;
        add(member, what, group.front());
        at(member).erase(what);
      }
    }
    return true;
  }

  bool spread(const std::vector<std::int64_t>& group, const std::vector<std::int64_t>& roots,
              const std::vector<std::vector<HeldPiece>>& pieces) {
    for (std::size_t r = 0; r < roots.size(); ++r) {
      for (const std::int64_t member : group) {
        if (member == roots[r]) continue;
        for (const HeldPiece& what : pieces[r]) copy(roots[r], what, member, what);
      }
    }
    return true;
  }

  // Every rank has the same amount for each member. Contributions to a sum stay apart, because the receiver adds them.
  bool exchange(const std::vector<std::int64_t>& group, Scope scope,
                const std::vector<std::vector<HeldPiece>>& before) {
    for (const std::vector<HeldPiece>& list : before) {
      for (const std::int64_t to : group) {
        const auto share = std::count_if(list.begin(), list.end(),
                                         [&](const HeldPiece& what) { return keeps(to, scope, what.piece); });
        if (share * std::ssize(group) != std::ssize(before.front())) return false;
      }
    }
    for (std::size_t m = 0; m < group.size(); ++m) {
      for (const std::int64_t to : group) {
        if (to == group[m]) continue;
        for (const HeldPiece& what : before[m]) {
          if (!keeps(to, scope, what.piece)) continue;
          const bool sums = reduces(spec().kind);
          copy(group[m], what, to, {what.piece, sums ? 1 + group[m] : what.copy});
          at(group[m]).erase(what);
        }
      }
    }
    return true;
  }

  bool send_what_is_asked_for(const std::vector<std::int64_t>& group,
                              const std::vector<std::vector<HeldPiece>>& before) {
    for (std::size_t m = 0; m < group.size(); ++m) {
      for (const std::int64_t to : group) {
        if (to == group[m]) continue;
        for (const auto& [piece, slot] : wanted(to)) {
          const HeldPiece what{piece, 0};
          if (std::binary_search(before[m].begin(), before[m].end(), what)) copy(group[m], what, to, what);
        }
      }
    }
    return true;
  }

  // Returns all contributions to a piece that a rank has, its own included.
  bool add_copies() {
    for (std::int64_t rank = 0; rank < spec().ranks; ++rank) {
      std::map<std::int64_t, std::vector<HeldPiece>> copies;
      for (const auto& [what, slot] : at(rank)) copies[what.piece].push_back(what);
      for (const auto& [piece, list] : copies) {
        const HeldPiece sum{piece, 0};
        const SlotRef place = room(rank, sum);
        builder_.copy({rank, at(rank).at(list.front())}, {rank, place});
        for (std::size_t i = 1; i < list.size(); ++i) builder_.reduce({rank, at(rank).at(list[i])}, {rank, place});
        for (const HeldPiece& what : list) at(rank).erase(what);
        at(rank)[sum] = place;
      }
    }
    return true;
  }

  std::int64_t inner_, middle_, top_;
  ProgramBuilder builder_;
  std::vector<HeldPieces> held_;                              // by rank
  std::vector<std::map<std::int64_t, std::int64_t>> wanted_;  // by rank, by piece
  std::vector<std::int64_t> scratch_;                         // by rank: slots given away
};

}  // namespace

std::optional<Program> composed_program(Collective collective, std::span<const RuleLeg> legs, std::int64_t ranks,
                                        LevelSizes levels) {
  WEFT_CHECK(levels.inner >= 1 && levels.middle >= 1 && ranks >= levels.inner * levels.middle &&
             ranks % (levels.inner * levels.middle) == 0);
  LegComposer composer(collective, ranks, levels);
  for (const RuleLeg& leg : legs) {
    if (!composer.apply(leg)) return std::nullopt;
  }
  return std::move(composer).finish();
}

}  // namespace weft
