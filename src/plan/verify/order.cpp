#include "plan/verify/order.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

// Members of a joint transfer are one node: the first member stands for all.
class Nodes {
 public:
  explicit Nodes(const Unfolded& unfolded) : unfolded_(unfolded) {}
  std::int32_t leader(std::int32_t instance) const {
    const std::int32_t joint = unfolded_.instances()[static_cast<std::size_t>(instance)].joint;
    return joint < 0 ? instance : unfolded_.members(static_cast<std::size_t>(joint)).front();
  }
  template <class Visit>
  void for_each_member(std::int32_t instance, Visit visit) const {
    const std::int32_t joint = unfolded_.instances()[static_cast<std::size_t>(instance)].joint;
    if (joint < 0) {
      visit(instance);
    } else {
      for (const std::int32_t member : unfolded_.members(static_cast<std::size_t>(joint))) visit(member);
    }
  }

 private:
  const Unfolded& unfolded_;
};

// From any instance that never ran, following one unfinished predecessor after the other must run into a cycle.
std::vector<std::int32_t> trace_cycle(const Unfolded& unfolded, const std::vector<std::int32_t>& pending,
                                      std::int32_t start) {
  const Nodes nodes(unfolded);
  std::vector<std::int32_t> seen_at(unfolded.instances().size(), -1), path;
  std::int32_t at = start;
  while (seen_at[static_cast<std::size_t>(nodes.leader(at))] < 0) {
    seen_at[static_cast<std::size_t>(nodes.leader(at))] = static_cast<std::int32_t>(path.size());
    std::int32_t waits_for = -1, waiting_member = at;
    nodes.for_each_member(at, [&](std::int32_t member) {
      for (const Edge& edge : unfolded.waits_for(static_cast<std::size_t>(member))) {
        if (waits_for < 0 && edge.distance == 0 && pending[static_cast<std::size_t>(nodes.leader(edge.from))] > 0) {
          waits_for = edge.from;
          waiting_member = member;
        }
      }
    });
    WEFT_CHECK(waits_for >= 0);
    path.push_back(waiting_member);
    at = waits_for;
  }
  path.erase(path.begin(), path.begin() + seen_at[static_cast<std::size_t>(nodes.leader(at))]);
  return path;
}

}  // namespace

RunOrder find_run_order(const Unfolded& unfolded) {
  const Nodes nodes(unfolded);
  const std::size_t n = unfolded.instances().size();
  std::vector<std::int32_t> pending(n, 0), count(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) {
    for (const Edge& edge : unfolded.waits_for(i)) {
      if (edge.distance != 0) continue;
      ++pending[static_cast<std::size_t>(nodes.leader(static_cast<std::int32_t>(i)))];
      ++count[static_cast<std::size_t>(nodes.leader(edge.from))];
    }
  }
  // Successor lists, as one array.
  std::vector<std::int64_t> begin(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) begin[i + 1] = begin[i] + count[i];
  std::vector<std::int32_t> successors(static_cast<std::size_t>(begin[n]));
  std::vector<std::int64_t> fill(begin.begin(), begin.end() - 1);
  for (std::size_t i = 0; i < n; ++i) {
    for (const Edge& edge : unfolded.waits_for(i)) {
      if (edge.distance != 0) continue;
      const auto from = static_cast<std::size_t>(nodes.leader(edge.from));
      successors[static_cast<std::size_t>(fill[from]++)] = nodes.leader(static_cast<std::int32_t>(i));
    }
  }
  RunOrder result;
  std::vector<std::int32_t> ready;
  std::size_t done = 0;
  for (std::size_t i = n; i-- > 0;) {
    const auto id = static_cast<std::int32_t>(i);
    if (pending[i] == 0 && nodes.leader(id) == id) ready.push_back(id);
  }
  while (!ready.empty()) {
    const std::int32_t at = ready.back();
    ready.pop_back();
    nodes.for_each_member(at, [&](std::int32_t member) {
      result.order.push_back(member);
      ++done;
    });
    for (std::int64_t e = begin[static_cast<std::size_t>(at)]; e < begin[static_cast<std::size_t>(at) + 1]; ++e) {
      const std::int32_t next = successors[static_cast<std::size_t>(e)];
      if (--pending[static_cast<std::size_t>(next)] == 0) ready.push_back(next);
    }
  }
  if (done == n) return result;
  result.order.clear();
  for (std::size_t i = 0; i < n; ++i) {
    if (pending[i] > 0) {
      result.cycle = trace_cycle(unfolded, pending, static_cast<std::int32_t>(i));
      return result;
    }
  }
  return result;
}

Landmarks::Landmarks(const Unfolded& unfolded, const std::vector<std::int32_t>& order) {
  const Nodes nodes(unfolded);
  const std::vector<Instance>& instances = unfolded.instances();
  known_.resize(instances.size());
  const auto from_chain = [&](const Edge& edge) {
    return instances[static_cast<std::size_t>(edge.from)].chain_position >= 0;
  };
  std::vector<std::int32_t> found;
  for (const std::int32_t i : order) {
    if (nodes.leader(i) != i) continue;
    const Instance& instance = instances[static_cast<std::size_t>(i)];
    const std::span<const Edge> edges = unfolded.waits_for(static_cast<std::size_t>(i));
    const bool in_chain = instance.joint < 0 && instance.chain_position >= 0;
    if (in_chain && std::all_of(edges.begin(), edges.end(), from_chain)) continue;
    nodes.for_each_member(i, [&](std::int32_t member) {
      known_[static_cast<std::size_t>(member)].row = static_cast<std::int32_t>(found.size());
    });
    found.push_back(i);
  }
  spread_along_chains(instances);

  for (const std::int32_t landmark : found) {
    nodes.for_each_member(landmark, [&](std::int32_t member) {
      const std::int32_t rank_class = instances[static_cast<std::size_t>(member)].rank_class;
      for (const Edge& edge : unfolded.waits_for(static_cast<std::size_t>(member))) {
        const Known& from = known(edge.from);
        sources_.push_back({{from.row, from.ago + edge.distance}, edge.from, rank_class, edge.distance});
      }
      sources_.push_back({{}, member, rank_class, 0});
    });
    source_begin_.push_back(sources_.size());
  }
}

// The first operations of a chain know what the last landmark of the previous iteration knew.
void Landmarks::spread_along_chains(const std::vector<Instance>& instances) {
  for (std::size_t begin = 0, end = 0; begin < instances.size(); begin = end) {
    Known last{-1, 1};
    for (; end < instances.size() && instances[end].rank_class == instances[begin].rank_class; ++end) {
      if (instances[end].chain_position >= 0 && known_[end].row >= 0) last.row = known_[end].row;
    }
    for (std::size_t i = begin; i < end; ++i) {
      if (instances[i].chain_position < 0) continue;
      if (known_[i].row >= 0) {
        last = known_[i];
      } else {
        known_[i] = last;
      }
    }
  }
}

HappensBefore::HappensBefore(const Plan& plan, const Unfolded& unfolded, const Landmarks& landmarks,
                             std::size_t rank_class)
    : unfolded_(unfolded), landmarks_(landmarks), rank_class_(static_cast<std::int32_t>(rank_class)) {
  const std::vector<Queue>& queues = plan.classes[rank_class].queues;
  entry_of_queue_.assign(queues.size(), -1);
  length_.push_back(unfolded.chain_length(rank_class));
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const auto queue = static_cast<std::size_t>(plan.issues[i].queue);
    if (plan.graph.operations[i].rank_class.index() != rank_class || plan.issues[i].blocking) continue;
    if (queues[queue].kind == QueueKind::compute || entry_of_queue_[queue] >= 0) continue;
    entry_of_queue_[queue] = static_cast<std::int32_t>(length_.size());
    length_.push_back(unfolded.queue_length(rank_class, queue));
  }
  width_ = length_.size();
  if (width_ == 1) return;  // the chain orders everything

  clock_.assign(2 * landmarks.rows() * width_, -1);
  for (int iteration = 0; iteration < 2; ++iteration) {
    for (std::size_t l = 0; l < landmarks.rows(); ++l) {
      std::int32_t* clock = &clock_[(static_cast<std::size_t>(iteration) * landmarks.rows() + l) * width_];
      for (const Landmarks::Source& source : landmarks.sources(l)) learn(clock, source, iteration);
    }
  }
}

std::size_t HappensBefore::entry_of(const Instance& instance) const {
  if (instance.chain_position >= 0) return 0;
  return static_cast<std::size_t>(entry_of_queue_[static_cast<std::size_t>(instance.queue)]);
}

std::int32_t HappensBefore::time_of(const Instance& instance, int iteration) const {
  const std::int32_t position = instance.chain_position >= 0 ? instance.chain_position : instance.queue_position;
  return iteration * length_[entry_of(instance)] + position;
}

const std::int32_t* HappensBefore::row(const Landmarks::Known& known, int iteration) const {
  if (known.row < 0 || known.ago > iteration) return nullptr;
  const std::size_t rows_before = static_cast<std::size_t>(iteration - known.ago) * landmarks_.rows();
  return &clock_[(rows_before + static_cast<std::size_t>(known.row)) * width_];
}

// What is certain once the source has ended.
void HappensBefore::learn(std::int32_t* clock, const Landmarks::Source& source, int iteration) const {
  if (const std::int32_t* known = row(source.known, iteration)) {
    for (std::size_t w = 0; w < width_; ++w) clock[w] = std::max(clock[w], known[w]);
  }
  if (source.rank_class != rank_class_ || source.distance > iteration) return;
  const Instance& instance = unfolded_.instances()[static_cast<std::size_t>(source.instance)];
  std::int32_t& own = clock[entry_of(instance)];
  own = std::max(own, time_of(instance, iteration - source.distance));
}

bool HappensBefore::ended_before(std::int32_t a, int ia, std::int32_t b, int ib) const {
  const Instance& first = unfolded_.instances()[static_cast<std::size_t>(a)];
  const Instance& second = unfolded_.instances()[static_cast<std::size_t>(b)];
  if (first.chain_position >= 0 && second.chain_position >= 0) return time_of(first, ia) < time_of(second, ib);
  if (a == b && ia == ib) return false;  // clocks hold what has ended when b has ended
  const std::int32_t* known = row(landmarks_.known(b), ib);
  return known != nullptr && known[entry_of(first)] >= time_of(first, ia);
}

}  // namespace weft
