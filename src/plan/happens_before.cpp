#include "plan/happens_before.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

// Members of a joint transfer are one node, and the first member stands for all.
class Nodes {
 public:
  explicit Nodes(const Unfolded& unfolded) : unfolded_(unfolded) {}
  InstanceId leader(InstanceId instance) const { return members(instance).front(); }
  std::span<const InstanceId> members(const InstanceId& instance) const {
    const JointId joint = unfolded_.instances()[instance].joint;
    return joint.valid() ? unfolded_.members(joint) : std::span(&instance, 1);
  }

 private:
  const Unfolded& unfolded_;
};

// A sequence is the chain of a class or a queue beside it: its instances run one after the other, in issue order.
class Sequences {
 public:
  explicit Sequences(const Instances& instances) {
    std::size_t classes = 0, width = 1;
    for (const Instance& instance : instances) {
      classes = std::max(classes, instance.rank_class.index() + 1);
      width = std::max(width, instance.queue.index() + 2);
    }
    sequences_.resize(classes * width);
    for (const InstanceId i : instances.ids()) {
      const Instance& instance = instances[i];
      const std::size_t in_class = instance.chain_position >= 0 ? 0 : instance.queue.index() + 1;
      sequence_of_.push_back(instance.rank_class.index() * width + in_class);
      sequences_[sequence_of_[i]].instances.push_back(i);
    }
  }

  std::size_t count() const { return sequences_.size(); }
  // The result is not valid at the end of the sequence.
  InstanceId next(std::size_t sequence) const {
    const Sequence& s = sequences_[sequence];
    return s.at < s.instances.size() ? s.instances[s.at] : InstanceId{};
  }
  bool is_next(InstanceId instance) const { return next(sequence_of_[instance]) == instance; }
  void advance(InstanceId instance) { ++sequences_[sequence_of_[instance]].at; }

 private:
  struct Sequence {
    std::vector<InstanceId> instances;
    std::size_t at = 0;
  };
  std::vector<Sequence> sequences_;
  IdVector<InstanceId, std::size_t> sequence_of_;
};

// From any instance that never ran, following one unfinished predecessor after the other must run into a cycle.
std::vector<InstanceId> trace_cycle(const Unfolded& unfolded, const IdVector<InstanceId, char>& ended,
                                    InstanceId start) {
  const Nodes nodes(unfolded);
  IdVector<InstanceId, std::int32_t> seen_at(unfolded.instances().size(), -1);
  std::vector<InstanceId> path;
  InstanceId at = start;
  while (seen_at[nodes.leader(at)] < 0) {
    seen_at[nodes.leader(at)] = static_cast<std::int32_t>(path.size());
    InstanceId waits_for, waiting_member = at;
    for (const InstanceId member : nodes.members(at)) {
      for (const Edge& edge : unfolded.waits_for(member)) {
        if (!waits_for.valid() && edge.distance == 0 && !ended[edge.from]) {
          waits_for = edge.from;
          waiting_member = member;
        }
      }
    }
    WEFT_CHECK(waits_for.valid());
    path.push_back(waiting_member);
    at = waits_for;
  }
  path.erase(path.begin(), path.begin() + seen_at[nodes.leader(at)]);
  return path;
}

}  // namespace

// Every instance stands in one sequence, the chain of its class or a queue beside it. So each sequence goes on as far
// as what it waits for has run, again and again, until all of them are at their ends or stuck.
RunOrder find_run_order(const Unfolded& unfolded) {
  const Nodes nodes(unfolded);
  const std::size_t n = unfolded.instances().size();
  Sequences sequences(unfolded.instances());
  IdVector<InstanceId, char> ended(n, 0);
  const auto can_run = [&](InstanceId member) {
    const std::span<const Edge> edges = unfolded.waits_for(member);
    return sequences.is_next(member) && std::all_of(edges.begin(), edges.end(), [&](const Edge& edge) {
             return edge.distance != 0 || ended[edge.from];
           });
  };
  RunOrder result;
  result.order.reserve(n);
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t s = 0; s < sequences.count(); ++s) {
      for (InstanceId next = sequences.next(s); next.valid(); next = sequences.next(s)) {
        const std::span<const InstanceId> members = nodes.members(next);
        if (!std::all_of(members.begin(), members.end(), can_run)) break;
        for (const InstanceId member : members) {
          result.order.push_back(member);
          ended[member] = 1;
          sequences.advance(member);
        }
        progress = true;
      }
    }
  }
  if (result.order.size() == n) return result;
  result.order.clear();
  const auto stuck = make_id<InstanceId>(std::find(ended.begin(), ended.end(), 0) - ended.begin());
  result.cycle = trace_cycle(unfolded, ended, stuck);
  return result;
}

namespace {

// Keeps the last edge of each sequence: whoever waits for it knows all that the earlier ones know. An update that reads
// the gradients of every micro-batch waits for many.
void find_latest(const Instances& instances, std::span<const Edge> edges, std::vector<Edge>& latest) {
  const auto instance = [&](const Edge& edge) -> const Instance& { return instances[edge.from]; };
  const auto same_sequence = [&](const Edge& a, const Edge& b) {
    const Instance &ia = instance(a), &ib = instance(b);
    if (ia.rank_class != ib.rank_class || (ia.chain_position >= 0) != (ib.chain_position >= 0)) return false;
    return ia.chain_position >= 0 || ia.queue == ib.queue;
  };
  const auto later = [&](const Edge& a, const Edge& b) {
    // Both are of one class, whose instances are in issue order.
    return a.distance != b.distance ? a.distance < b.distance : a.from > b.from;
  };
  latest.clear();
  for (const Edge& edge : edges) {
    const auto known =
        std::find_if(latest.begin(), latest.end(), [&](const Edge& other) { return same_sequence(edge, other); });
    if (known == latest.end()) {
      latest.push_back(edge);
    } else if (later(edge, *known)) {
      *known = edge;
    }
  }
}

}  // namespace

Landmarks::Landmarks(const Unfolded& unfolded, const std::vector<InstanceId>& order) {
  const Nodes nodes(unfolded);
  const Instances& instances = unfolded.instances();
  known_.resize(instances.size());
  const auto from_chain = [&](const Edge& edge) { return instances[edge.from].chain_position >= 0; };
  std::vector<InstanceId> found;
  for (const InstanceId i : order) {
    if (nodes.leader(i) != i) continue;
    const Instance& instance = instances[i];
    const std::span<const Edge> edges = unfolded.waits_for(i);
    const bool in_chain = !instance.joint.valid() && instance.chain_position >= 0;
    if (in_chain && std::all_of(edges.begin(), edges.end(), from_chain)) continue;
    for (const InstanceId member : nodes.members(i)) known_[member].row = static_cast<std::int32_t>(found.size());
    found.push_back(i);
  }
  spread_along_chains(instances);

  std::vector<Edge> latest;
  for (const InstanceId landmark : found) {
    for (const InstanceId member : nodes.members(landmark)) {
      const ClassId rank_class = instances[member].rank_class;
      find_latest(instances, unfolded.waits_for(member), latest);
      for (const Edge& edge : latest) {
        const Known& from = known(edge.from);
        sources_.push_back({{from.row, from.ago + edge.distance}, edge.from, rank_class, edge.distance});
      }
      sources_.push_back({{}, member, rank_class, 0});
    }
    source_begin_.push_back(sources_.size());
  }
  sort_by_class(instances, found);
  find_messages(unfolded, found);
}

// The first operations of a chain know what the last landmark of the previous iteration knew.
void Landmarks::spread_along_chains(const Instances& instances) {
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

void Landmarks::sort_by_class(const Instances& instances, const std::vector<InstanceId>& found) {
  const auto is_message = [&](InstanceId landmark) { return instances[landmark].joint.valid(); };
  rows_of_class_.resize(instances.empty() ? 0 : instances.back().rank_class.index() + 1);
  const std::size_t messages = std::count_if(found.begin(), found.end(), is_message);
  IdVector<ClassId, std::size_t> next_place(rows_of_class_.size(), messages);
  std::size_t next_message = 0;
  for (const InstanceId landmark : found) {
    const auto row = static_cast<std::int32_t>(is_message_.size());
    is_message_.push_back(is_message(landmark));
    if (is_message(landmark)) {
      place_.push_back(next_message++);
      for (std::vector<std::int32_t>& rows : rows_of_class_) rows.push_back(row);
    } else {
      const ClassId own = instances[landmark].rank_class;
      place_.push_back(next_place[own]++);
      rows_of_class_[own].push_back(row);
    }
  }
}

namespace {

// Numbers the sequences of each class that have messages.
class MessageSequences {
 public:
  MessageSequences(const Unfolded& unfolded, const std::vector<InstanceId>& landmarks)
      : instances_(unfolded.instances()), nodes_(unfolded) {
    for (const InstanceId landmark : landmarks) {
      if (!instances_[landmark].joint.valid()) continue;
      for (const InstanceId member : nodes_.members(landmark)) add(instances_[member]);
    }
  }

  // Of the class that has most.
  std::size_t most() const { return most_; }
  // Returns the sequence of a class that a message is in.
  std::size_t of(InstanceId message, ClassId rank_class) const {
    const std::span<const InstanceId> members = nodes_.members(message);
    const auto own = std::find_if(members.begin(), members.end(),
                                  [&](InstanceId member) { return instances_[member].rank_class == rank_class; });
    return static_cast<std::size_t>(number_[rank_class][in_class(instances_[*own])]);
  }

 private:
  static std::size_t in_class(const Instance& instance) {
    return instance.chain_position >= 0 ? 0 : instance.queue.index() + 1;
  }
  void add(const Instance& instance) {
    const std::size_t sequence = in_class(instance);
    if (!number_.contains(instance.rank_class)) number_.resize(instance.rank_class.index() + 1);
    std::vector<std::int32_t>& numbers = number_[instance.rank_class];
    if (numbers.size() <= sequence) numbers.resize(sequence + 1, -1);
    if (numbers[sequence] >= 0) return;
    numbers[sequence] = static_cast<std::int32_t>(std::ranges::count_if(numbers, [](auto n) { return n >= 0; }));
    most_ = std::max(most_, static_cast<std::size_t>(numbers[sequence]) + 1);
  }

  const Instances& instances_;
  Nodes nodes_;
  IdVector<ClassId, std::vector<std::int32_t>> number_;  // by sequence; -1: it has no messages
  std::size_t most_ = 0;
};

}  // namespace

// Whoever knows a message knows what came before it in its sequence, so the last one of each is enough.
void Landmarks::find_messages(const Unfolded& unfolded, const std::vector<InstanceId>& found) {
  const MessageSequences sequences(unfolded, found);
  sequences_ = sequences.most();
  if (sequences_ == 0) return;
  messages_.assign(found.size() * sequences_, kNever);
  const auto known_by = [&](std::size_t row, std::size_t sequence) -> std::int64_t& {
    return messages_[row * sequences_ + sequence];
  };
  const auto learn = [&](std::size_t row, std::size_t sequence, std::int64_t moment, std::int32_t ago) {
    if (moment == kNever || moment - ago * rows() < -rows()) return;  // two iterations are looked at
    known_by(row, sequence) = std::max(known_by(row, sequence), moment - ago * rows());
  };
  const auto learn_from = [&](std::size_t row, const Source& source) {
    const Known& from = source.known;
    if (from.row < 0) return;
    const std::size_t from_row = from.row;
    if (is_message_[from_row]) return learn(row, sequences.of(found[from_row], source.rank_class), from.row, from.ago);
    for (std::size_t s = 0; s < sequences_; ++s) learn(row, s, known_by(from_row, s), from.ago);
  };
  // The second time with what the iteration before has left.
  for (int iteration = 0; iteration < 2; ++iteration) {
    for (std::size_t row = 0; row < found.size(); ++row) {
      if (is_message_[row]) continue;
      for (const Source& source : sources(static_cast<std::int32_t>(row))) learn_from(row, source);
    }
  }
}

HappensBefore::HappensBefore(const Plan& plan, const Unfolded& unfolded, const Landmarks& landmarks, ClassId rank_class)
    : unfolded_(unfolded), landmarks_(landmarks), rank_class_(rank_class) {
  const IdVector<QueueId, Queue>& queues = plan.classes[rank_class].queues;
  entry_of_queue_.resize(queues.size());
  length_.push_back(unfolded.chain_length(rank_class));
  for (const OpId id : plan.issues.ids()) {
    const QueueId queue = plan.issues[id].queue;
    if (plan.graph.op(id).rank_class != rank_class || plan.issues[id].blocking) continue;
    if (queues[queue].kind == QueueKind::compute || entry_of_queue_[queue] > 0) continue;
    entry_of_queue_[queue] = length_.size();
    length_.push_back(unfolded.queue_length(rank_class, queue));
  }
  width_ = length_.size();
  if (width_ == 1) return;  // the chain orders everything

  const std::span<const std::int32_t> rows = landmarks.rows_of(rank_class);
  rows_ = rows.size();
  clock_.assign(2 * rows_ * width_, -1);
  for (int iteration = 0; iteration < 2; ++iteration) {
    for (const std::int32_t row : rows) {
      std::int32_t* clock = &clock_[index_of(row, iteration)];
      for (const Landmarks::Source& source : landmarks.sources(row)) {
        if (source.rank_class == rank_class) {
          learn(clock, source, iteration);
        } else {
          landmarks.for_each_message(source.known,
                                     [&](const Landmarks::Known& message) { learn_all(clock, message, iteration); });
        }
      }
    }
  }
}

std::size_t HappensBefore::index_of(std::int32_t row, int iteration) const {
  return (static_cast<std::size_t>(iteration) * rows_ + landmarks_.place_of(row)) * width_;
}

std::size_t HappensBefore::entry_of(const Instance& instance) const {
  return instance.chain_position >= 0 ? 0 : entry_of_queue_[instance.queue];
}

std::int32_t HappensBefore::time_of(const Instance& instance, int iteration) const {
  const std::int32_t position = instance.chain_position >= 0 ? instance.chain_position : instance.queue_position;
  return iteration * length_[entry_of(instance)] + position;
}

const std::int32_t* HappensBefore::row(const Landmarks::Known& known, int iteration) const {
  if (known.row < 0 || known.ago > iteration) return nullptr;
  return &clock_[index_of(known.row, iteration - known.ago)];
}

void HappensBefore::learn_all(std::int32_t* clock, const Landmarks::Known& known, int iteration) const {
  const std::int32_t* from = row(known, iteration);
  if (from == nullptr) return;
  for (std::size_t w = 0; w < width_; ++w) clock[w] = std::max(clock[w], from[w]);
}

// Adds what is certain once the source, which is of this class, has ended.
void HappensBefore::learn(std::int32_t* clock, const Landmarks::Source& source, int iteration) const {
  learn_all(clock, source.known, iteration);
  if (source.distance > iteration) return;
  const Instance& instance = unfolded_.instances()[source.instance];
  std::int32_t& own = clock[entry_of(instance)];
  own = std::max(own, time_of(instance, iteration - source.distance));
}

bool HappensBefore::ended_before(InstanceId a, int ia, InstanceId b, int ib) const {
  const Instance& first = unfolded_.instances()[a];
  const Instance& second = unfolded_.instances()[b];
  if (first.chain_position >= 0 && second.chain_position >= 0) return time_of(first, ia) < time_of(second, ib);
  if (a == b && ia == ib) return false;  // clocks hold what has ended when b has ended
  const std::int32_t* known = row(landmarks_.known(b), ib);
  return known != nullptr && known[entry_of(first)] >= time_of(first, ia);
}

}  // namespace weft
