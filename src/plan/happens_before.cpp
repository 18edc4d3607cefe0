#include "plan/happens_before.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

// Members of a joint transfer are one node: the first member stands for all.
class Nodes {
 public:
  explicit Nodes(const Unfolded& unfolded) : unfolded_(unfolded) {}
  std::int32_t leader(std::int32_t instance) const {
    const std::int32_t joint = unfolded_.instances()[instance].joint;
    return joint < 0 ? instance : unfolded_.members(joint).front();
  }
  template <class Visit>
  void for_each_member(std::int32_t instance, Visit visit) const {
    const std::int32_t joint = unfolded_.instances()[instance].joint;
    if (joint < 0) {
      visit(instance);
    } else {
      for (const std::int32_t member : unfolded_.members(joint)) visit(member);
    }
  }

 private:
  const Unfolded& unfolded_;
};

// Instances that run one after the other, in issue order: the chain of a class, or a queue beside it.
class Lanes {
 public:
  explicit Lanes(const std::vector<Instance>& instances) : lane_of_(instances.size()) {
    std::int32_t classes = 0, queues = 0;
    for (const Instance& instance : instances) {
      classes = std::max(classes, instance.rank_class + 1);
      queues = std::max(queues, instance.queue + 1);
    }
    lanes_.resize(classes * (queues + 1));
    for (std::size_t i = 0; i < instances.size(); ++i) {
      const Instance& instance = instances[i];
      const std::int32_t in_class = instance.chain_position >= 0 ? 0 : instance.queue + 1;
      lane_of_[i] = instance.rank_class * (queues + 1) + in_class;
      lanes_[lane_of_[i]].instances.push_back(static_cast<std::int32_t>(i));
    }
  }

  std::size_t count() const { return lanes_.size(); }
  // -1 at its end.
  std::int32_t next(std::size_t lane) const {
    const Lane& l = lanes_[lane];
    return l.at < l.instances.size() ? l.instances[l.at] : -1;
  }
  bool is_next(std::int32_t instance) const { return next(lane_of(instance)) == instance; }
  void advance(std::int32_t instance) { ++lanes_[lane_of(instance)].at; }

 private:
  struct Lane {
    std::vector<std::int32_t> instances;
    std::size_t at = 0;
  };
  std::size_t lane_of(std::int32_t instance) const { return static_cast<std::size_t>(lane_of_[instance]); }

  std::vector<Lane> lanes_;
  std::vector<std::int32_t> lane_of_;  // by instance
};

// From any instance that never ran, following one unfinished predecessor after the other must run into a cycle.
std::vector<std::int32_t> trace_cycle(const Unfolded& unfolded, const std::vector<char>& ended, std::int32_t start) {
  const Nodes nodes(unfolded);
  std::vector<std::int32_t> seen_at(unfolded.instances().size(), -1), path;
  std::int32_t at = start;
  while (seen_at[nodes.leader(at)] < 0) {
    seen_at[nodes.leader(at)] = static_cast<std::int32_t>(path.size());
    std::int32_t waits_for = -1, waiting_member = at;
    nodes.for_each_member(at, [&](std::int32_t member) {
      for (const Edge& edge : unfolded.waits_for(member)) {
        if (waits_for < 0 && edge.distance == 0 && !ended[edge.from]) {
          waits_for = edge.from;
          waiting_member = member;
        }
      }
    });
    WEFT_CHECK(waits_for >= 0);
    path.push_back(waiting_member);
    at = waits_for;
  }
  path.erase(path.begin(), path.begin() + seen_at[nodes.leader(at)]);
  return path;
}

}  // namespace

// Every instance stands in one lane, the chain of its class or a queue beside it, and a lane runs in order. So each
// lane goes on as far as what it waits for has run, again and again, until all lanes are at their ends or stuck.
RunOrder find_run_order(const Unfolded& unfolded) {
  const Nodes nodes(unfolded);
  const std::size_t n = unfolded.instances().size();
  Lanes lanes(unfolded.instances());
  std::vector<char> ended(n, 0);
  const auto can_run = [&](std::int32_t member) {
    const std::span<const Edge> edges = unfolded.waits_for(member);
    return lanes.is_next(member) && std::all_of(edges.begin(), edges.end(), [&](const Edge& edge) {
             return edge.distance != 0 || ended[edge.from];
           });
  };
  RunOrder result;
  result.order.reserve(n);
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t lane = 0; lane < lanes.count(); ++lane) {
      for (std::int32_t next = lanes.next(lane); next >= 0; next = lanes.next(lane)) {
        bool ready = true;
        nodes.for_each_member(next, [&](std::int32_t member) { ready = ready && can_run(member); });
        if (!ready) break;
        nodes.for_each_member(next, [&](std::int32_t member) {
          result.order.push_back(member);
          ended[member] = 1;
          lanes.advance(member);
        });
        progress = true;
      }
    }
  }
  if (result.order.size() == n) return result;
  result.order.clear();
  const auto stuck = static_cast<std::int32_t>(std::find(ended.begin(), ended.end(), 0) - ended.begin());
  result.cycle = trace_cycle(unfolded, ended, stuck);
  return result;
}

namespace {

// The last of each lane: whoever waits for it knows all that the earlier ones know. An update that reads the gradients
// of every micro-batch waits for many.
void find_latest(const std::vector<Instance>& instances, std::span<const Edge> edges, std::vector<Edge>& latest) {
  const auto instance = [&](const Edge& edge) -> const Instance& { return instances[edge.from]; };
  const auto same_lane = [&](const Edge& a, const Edge& b) {
    const Instance &ia = instance(a), &ib = instance(b);
    if (ia.rank_class != ib.rank_class || (ia.chain_position >= 0) != (ib.chain_position >= 0)) return false;
    return ia.chain_position >= 0 || ia.queue == ib.queue;
  };
  const auto later = [&](const Edge& a, const Edge& b) {
    // Of one class, so in issue order.
    return a.distance != b.distance ? a.distance < b.distance : a.from > b.from;
  };
  latest.clear();
  for (const Edge& edge : edges) {
    const auto known =
        std::find_if(latest.begin(), latest.end(), [&](const Edge& other) { return same_lane(edge, other); });
    if (known == latest.end()) {
      latest.push_back(edge);
    } else if (later(edge, *known)) {
      *known = edge;
    }
  }
}

}  // namespace

Landmarks::Landmarks(const Unfolded& unfolded, const std::vector<std::int32_t>& order) {
  const Nodes nodes(unfolded);
  const std::vector<Instance>& instances = unfolded.instances();
  known_.resize(instances.size());
  const auto from_chain = [&](const Edge& edge) { return instances[edge.from].chain_position >= 0; };
  std::vector<std::int32_t> found;
  for (const std::int32_t i : order) {
    if (nodes.leader(i) != i) continue;
    const Instance& instance = instances[i];
    const std::span<const Edge> edges = unfolded.waits_for(i);
    const bool in_chain = instance.joint < 0 && instance.chain_position >= 0;
    if (in_chain && std::all_of(edges.begin(), edges.end(), from_chain)) continue;
    nodes.for_each_member(i,
                          [&](std::int32_t member) { known_[member].row = static_cast<std::int32_t>(found.size()); });
    found.push_back(i);
  }
  spread_along_chains(instances);

  std::vector<Edge> latest;
  for (const std::int32_t landmark : found) {
    nodes.for_each_member(landmark, [&](std::int32_t member) {
      const std::int32_t rank_class = instances[member].rank_class;
      find_latest(instances, unfolded.waits_for(member), latest);
      for (const Edge& edge : latest) {
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
  return static_cast<std::size_t>(entry_of_queue_[instance.queue]);
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
  const Instance& instance = unfolded_.instances()[source.instance];
  std::int32_t& own = clock[entry_of(instance)];
  own = std::max(own, time_of(instance, iteration - source.distance));
}

bool HappensBefore::ended_before(std::int32_t a, int ia, std::int32_t b, int ib) const {
  const Instance& first = unfolded_.instances()[a];
  const Instance& second = unfolded_.instances()[b];
  if (first.chain_position >= 0 && second.chain_position >= 0) return time_of(first, ia) < time_of(second, ib);
  if (a == b && ia == ib) return false;  // clocks hold what has ended when b has ended
  const std::int32_t* known = row(landmarks_.known(b), ib);
  return known != nullptr && known[entry_of(first)] >= time_of(first, ia);
}

}  // namespace weft
