#include "sim/folding.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return index;
}

class Folder {
 public:
  Folder(const SimProblem& problem, bool folds) : p_(problem), chained_(p_.ranks.size(), folds) {
    chain_length_.assign(p_.ranks.size(), 0);
    for (const SimOperation& op : p_.operations) {
      // An extra operation may slip in wherever the chain's next operation is a transfer.
      if (op.queue == SimQueue::extra) chained_[at(op.rank)] = false;
      chain_length_[at(op.rank)] = std::max(chain_length_[at(op.rank)], op.chain + 1);
    }
  }

  Folding fold() {
    add_up_durations();
    find_places();
    look_at_edges();
    make_nodes();
    for (const bool count_only : {true, false}) connect(count_only);
    return std::move(f_);
  }

 private:
  // The place of an operation in a chain that is folded is small, because it is looked at often.
  struct Place {
    std::int32_t rank = -1;  // -1: none
    std::int32_t chain = -1;
  };

  // Returns whether the chain's order alone makes one wait for the other.
  static bool implied(Place waits, Place from, int distance) {
    return waits.rank >= 0 && waits.rank == from.rank && (distance > 0 || from.chain < waits.chain);
  }

  // Returns whether `from` comes right before `waits` in the chain.
  bool next_in_chain(Place waits, Place from, int distance) const {
    return waits.chain > 0 ? distance == 0 && from.chain == waits.chain - 1
                           : distance == 1 && from.chain == chain_length_[at(waits.rank)] - 1;
  }

  void find_places() {
    places_.resize(p_.operations.size());
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const SimOperation& op = p_.operations[i];
      if (op.chain >= 0 && chained_[at(op.rank)]) places_[i] = {op.rank, op.chain};
    }
  }

  void add_up_durations() {
    f_.alone_before.reserve(p_.operations.size() + 1);
    f_.alone_before.push_back(0);
    for (const SimOperation& op : p_.operations) {
      const SimCost& cost = p_.costs[at(op.cost)];
      f_.alone_before.push_back(f_.alone_before.back() + cost.fixed.value + cost.moving.value);
    }
  }

  void look_at_edges() {
    waits_outside_.assign(p_.operations.size(), false);
    awaited_outside_.assign(p_.operations.size(), false);
    for (std::size_t i = 0; i < p_.operations.size(); ++i) {
      const Place place = places_[i];
      bool follows = place.rank < 0;
      for (std::int32_t e = p_.edge_begin[i]; e < p_.edge_begin[i + 1]; ++e) {
        const Dependency& edge = p_.edges[e];
        const Place from = places_[at(edge.operation)];
        if (implied(place, from, edge.distance)) {
          follows = follows || next_in_chain(place, from, edge.distance);
        } else {
          waits_outside_[i] = awaited_outside_[at(edge.operation)] = true;
        }
      }
      // The chain's own edges are there, or lead through something beside it.
      WEFT_CHECK(follows || waits_outside_[i]);
    }
  }

  bool can_be_folded(std::size_t i) const {
    const SimOperation& op = p_.operations[i];
    return places_[i].rank >= 0 && !op.joint.valid() && f_.alone_before[i + 1] > f_.alone_before[i] &&
           !slows_itself_[at(op.cost)];
  }

  // Finds by cost whether it uses more than a whole resource.
  std::vector<bool> find_costs_that_slow_themselves() const {
    std::vector<bool> slow;
    std::map<std::int32_t, double> shares;
    for (const SimCost& cost : p_.costs) {
      shares.clear();
      for (const ResourceUse& use : cost.use) shares[use.resource] += use.share;
      slow.push_back(std::any_of(shares.begin(), shares.end(), [](const auto& s) { return s.second > 1; }));
    }
    return slow;
  }

  void make_nodes() {
    node_of_.reserve(p_.operations.size());
    slows_itself_ = find_costs_that_slow_themselves();
    std::map<std::vector<std::int32_t>, std::int32_t> sets;
    last_seen_.assign(p_.resources, -1);
    bool before = false;  // the operation before this one can be folded
    for (std::size_t i = 0; i < p_.operations.size(); ++i) {
      const bool able = can_be_folded(i);
      const bool joins = able && before && p_.operations[i].rank == p_.operations[i - 1].rank &&
                         p_.operations[i].chain == p_.operations[i - 1].chain + 1 && !waits_outside_[i] &&
                         !awaited_outside_[i - 1];
      before = able;
      if (joins) {
        ++f_.nodes.back().count;
      } else {
        const SimOperation& op = p_.operations[i];
        f_.nodes.push_back({static_cast<std::int32_t>(i), 1, 0, op.rank, op.joint, op.queue});
      }
      node_of_.push_back(static_cast<std::int32_t>(f_.nodes.size()) - 1);
    }
    std::vector<std::int32_t> resources;
    for (std::size_t n = 0; n < f_.nodes.size(); ++n) {
      if (!f_.nodes[n].is_fold()) continue;
      find_resources(n, resources);
      const auto [found, added] = sets.try_emplace(resources, static_cast<std::int32_t>(f_.resource_sets.size()));
      if (added) f_.resource_sets.push_back(resources);
      f_.nodes[n].resources = found->second;
    }
  }

  void find_resources(std::size_t node, std::vector<std::int32_t>& resources) {
    resources.clear();
    for (std::int32_t i = f_.nodes[node].first; i < f_.nodes[node].first + f_.nodes[node].count; ++i) {
      const SimOperation& op = p_.operations[at(i)];
      if (op.queue != SimQueue::transfer) continue;
      for (const ResourceUse& use : p_.costs[at(op.cost)].use) {
        if (last_seen_[at(use.resource)] == static_cast<std::int32_t>(node)) continue;
        last_seen_[at(use.resource)] = static_cast<std::int32_t>(node);
        resources.push_back(use.resource);
      }
    }
    std::sort(resources.begin(), resources.end());
  }

  // Only a node's first operation waits for anything but its own fold; only its last is waited for from outside.
  void connect(bool count_only) {
    if (count_only) {
      f_.waits.assign(f_.nodes.size(), 0);
      f_.waits_at_first.assign(f_.nodes.size(), 0);
      f_.successor_begin.assign(f_.nodes.size() + 1, 0);
    } else {
      for (std::size_t n = 0; n < f_.nodes.size(); ++n) f_.successor_begin[n + 1] += f_.successor_begin[n];
      f_.successors.resize(f_.successor_begin.back());
      filled_.assign(f_.successor_begin.begin(), f_.successor_begin.end() - 1);
    }
    for (std::size_t n = 0; n < f_.nodes.size(); ++n) {
      const auto i = at(f_.nodes[n].first);
      for (std::int32_t e = p_.edge_begin[i]; e < p_.edge_begin[i + 1]; ++e) {
        const Dependency& edge = p_.edges[e];
        const Place source = places_[at(edge.operation)];
        if (implied(places_[i], source, edge.distance) && !next_in_chain(places_[i], source, edge.distance)) continue;
        const std::size_t from = at(node_of_[at(edge.operation)]);
        if (count_only) {
          ++f_.successor_begin[from + 1];
          ++f_.waits[n];
          if (edge.distance == 0) ++f_.waits_at_first[n];
        } else {
          f_.successors[filled_[from]++] = {static_cast<std::int32_t>(n), edge.distance};
        }
      }
    }
  }

  const SimProblem& p_;
  Folding f_;
  std::vector<bool> chained_;               // by rank
  std::vector<std::int32_t> chain_length_;  // by rank
  std::vector<Place> places_;               // by operation
  std::vector<bool> waits_outside_, awaited_outside_;
  std::vector<bool> slows_itself_;  // by cost
  std::vector<std::int32_t> node_of_;
  std::vector<std::int32_t> last_seen_;  // by resource: the node that was found to use it last
  std::vector<std::int64_t> filled_;
};

}  // namespace

Folding fold(const SimProblem& problem, bool folds) {
  return Folder(problem, folds).fold();
}

}  // namespace weft
