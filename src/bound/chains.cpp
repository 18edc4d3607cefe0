#include "bound/chains.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();  // and so is what lies behind it

}  // namespace

Chains::Chains(const BoundProblem& problem) : p_(problem) {
  for (const BoundEdge& edge : p_.edges) WEFT_CHECK(edge.distance == 0 || edge.distance == 1);
  parts_.reserve(p_.nodes.size());
  for (const BoundNode& node : p_.nodes) parts_.push_back(node.part_ns);
  for (std::int32_t d = 0; d < 2; ++d) {
    in_[d] = links(d, true);
    out_[d] = links(d, false);
  }
  sort_nodes();
}

Chains::Links Chains::links(std::int32_t distance, bool incoming) const {
  Links links;
  links.begin.assign(p_.nodes.size() + 1, 0);
  for (const BoundEdge& edge : p_.edges) {
    if (edge.distance == distance) ++links.begin[at(incoming ? edge.to : edge.from) + 1];
  }
  for (std::size_t i = 0; i < p_.nodes.size(); ++i) links.begin[i + 1] += links.begin[i];
  links.nodes.resize(at(links.begin.back()));
  std::vector<std::int32_t> next(links.begin.begin(), links.begin.end() - 1);
  for (const BoundEdge& edge : p_.edges) {
    if (edge.distance != distance) continue;
    const std::int32_t here = incoming ? edge.to : edge.from;
    links.nodes[at(next[at(here)]++)] = incoming ? edge.from : edge.to;
  }
  return links;
}

// Takes the lowest number first: where nodes come in such an order already, as those of a step mostly do, tables are
// read from front to back.
void Chains::sort_nodes() {
  std::vector<std::size_t> pending(p_.nodes.size());
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> free;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    pending[i] = in_[0].of(static_cast<std::int32_t>(i)).size();
    if (pending[i] == 0) free.push(static_cast<std::int32_t>(i));
  }
  while (!free.empty()) {
    const std::int32_t node = free.top();
    free.pop();
    order_.push_back(node);
    for (const std::int32_t next : out_[0].of(node)) {
      if (--pending[at(next)] == 0) free.push(next);
    }
  }
  WEFT_CHECK(order_.size() == p_.nodes.size());  // the graph verifier excludes cycles of distance 0
  for (const std::int32_t node : order_) {
    for (Links& links : in_) {
      if (!links.of(node).empty()) links.order.push_back(node);
    }
  }
  for (auto node = order_.rbegin(); node != order_.rend(); ++node) {
    for (Links& links : out_) {
      if (!links.of(*node).empty()) links.order.push_back(*node);
    }
  }
}

// Takes the chains `from` each linked node on to the next.
void Chains::extend(const Links& links, const std::vector<Lanes>& from, std::vector<Lanes>& to) const {
  for (const std::int32_t node : links.order) {
    Lanes longest = to[at(node)];
    for (const std::int32_t other : links.of(node)) {
      const Lanes& before = from[at(other)];
      for (std::size_t i = 0; i < kMaxStarts / 2; ++i) {
        const Pair through = before.pairs[i] + parts_[at(other)];
        longest.pairs[i] = longest.pairs[i] < through ? through : longest.pairs[i];
      }
    }
    to[at(node)] = longest;
  }
}

void Chains::find(std::span<const std::int32_t> starts) {
  WEFT_CHECK(starts.size() <= kMaxStarts);
  Lanes never;
  for (std::size_t start = 0; start < kMaxStarts; ++start) never.set(start, kNever);
  for (auto* table : {&heads_[0], &heads_[1], &tails_[0], &tails_[1]}) table->assign(p_.nodes.size(), never);
  for (std::size_t start = 0; start < starts.size(); ++start) {
    heads_[0][at(starts[start])].set(start, 0);
    tails_[0][at(starts[start])].set(start, -parts_[at(starts[start])]);  // a tail does not count v
  }
  extend(in_[0], heads_[0], heads_[0]);
  extend(in_[1], heads_[0], heads_[1]);
  extend(in_[0], heads_[1], heads_[1]);
  extend(out_[0], tails_[0], tails_[0]);
  extend(out_[1], tails_[0], tails_[1]);
  extend(out_[0], tails_[1], tails_[1]);
  for (std::size_t start = 0; start < starts.size(); ++start) tails_[0][at(starts[start])].set(start, 0);
}

std::vector<double> Chains::longest_from_each() const {
  std::vector<double> last(p_.nodes.size(), 0), both(p_.nodes.size(), 0);  // in the next iteration; in this one too
  for (auto k = order_.rbegin(); k != order_.rend(); ++k) {
    const auto node = at(*k);
    for (const std::int32_t next : out_[0].of(*k)) last[node] = std::max(last[node], last[at(next)]);
    last[node] += parts_[node];
  }
  for (auto k = order_.rbegin(); k != order_.rend(); ++k) {
    const auto node = at(*k);
    for (const std::int32_t next : out_[0].of(*k)) both[node] = std::max(both[node], both[at(next)]);
    for (const std::int32_t next : out_[1].of(*k)) both[node] = std::max(both[node], last[at(next)]);
    both[node] += parts_[node];
  }
  return both;
}

}  // namespace weft
