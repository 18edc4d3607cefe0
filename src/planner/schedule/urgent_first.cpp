#include "planner/schedule/urgent_first.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "graph/op_lists.hpp"
#include "planner/schedule/blocks.hpp"
#include "planner/schedule/next_use.hpp"
#include "planner/schedule/postpone.hpp"
#include "planner/schedule/weight_codes.hpp"

namespace weft {
namespace {

// When backward has finished each operation of a class: of those that repeat, the last execution.
class ChainClock {
 public:
  ChainClock(const Plan& plan, const CostModel& cost, std::size_t rank_class, std::vector<double>& ended)
      : plan_(plan), cost_(cost), ended_(ended) {
    const ClassPlan& c = plan.classes[rank_class];
    struct Section {
      std::size_t last = 0;  // slot
      double length = -1;
    };
    std::map<std::pair<BlockId, std::int32_t>, Section> sections;  // by where they begin
    const auto section_of = [&](const IssueSlot& slot) -> Section& { return sections[{slot.block, slot.begin}]; };
    for (std::size_t s = 0; s < c.order.size(); ++s) section_of(c.order[s]).last = s;
    double now = 0;
    for (std::size_t s = 0; s < c.order.size(); ++s) {
      if (c.order[s].micro_batch == kOncePerStep) continue;
      Section& section = section_of(c.order[s]);
      if (section.last == s || section.length < 0) section.length = walk(operations_of(c, c.order[s]), now);
      now += section.length;
    }
  }

 private:
  // Operations beside compute end with what is issued before them.
  double walk(std::span<const OpId> operations, double begin) const {
    double now = begin;
    for (const OpId id : operations) {
      const bool in_chain = !plan_.graph.op(id).is_transfer() || plan_.issues[id].blocking;
      if (in_chain) now += static_cast<double>(cost_.alone(plan_.graph.op(id)).value);
      ended_[id.index()] = now;
    }
    return now - begin;
  }

  const Plan& plan_;
  const CostModel& cost_;
  std::vector<double>& ended_;
};

// Behind the first stage of a plain pipeline there is time to spare: the stages before it have yet to go through
// backward, and through the next forward. Its reductions wait for its own backward to end, or they would take the link
// from the messages that the others wait for.
bool holds_back(const Plan& plan, std::size_t rank_class) {
  return plan.layout.pp > 1 && plan.layout.vpp == 1 && plan.graph.classes[rank_class].stage > 0;
}

class UrgentFirst {
 public:
  UrgentFirst(Plan& plan, const CostModel& cost)
      : plan_(plan),
        cost_(cost),
        use_(next_use(plan.graph)),
        writers_(writers_by_value(plan.graph)),
        ended_(plan.graph.operations.size(), 0),
        place_(plan.graph.operations.size()) {}

  void run(bool hold_back) {
    for (std::size_t c = 0; c < plan_.classes.size(); ++c) {
      ChainClock(plan_, cost_, c, ended_);
      order_class(plan_.classes[c], hold_back && holds_back(plan_, c));
    }
  }

 private:
  // Where an operation stands in the update block: first reductions as a link takes them; what is left of the
  // gradients' way; then updates, each followed by its gathers; then encodings of what updates left.
  struct Place {
    int stage = 0;
    double first = 0;
    int second = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };

  void order_class(ClassPlan& c, bool held) {
    std::vector<OpId>& update = block_of(c, BlockKind::update).operations;
    std::map<QueueId, std::vector<OpId>> queues;  // of reductions
    const std::map<OpId, double> decodings = turns_of_decodings(plan_, update, use_);
    for (const OpId id : update) {
      const Operation& op = plan_.graph.op(id);
      const double use = use_[id.index()];
      switch (op.role) {
        case Role::replica_reduce:
        case Role::grad_reduce:
        case Role::shard_reduce:
          queues[plan_.issues[id].queue].push_back(id);
          break;
        case Role::update:
          place_[id.index()] = {2, use, 0};
          break;
        case Role::param_gather:
          place_[id.index()] = {2, use, 2};
          break;
        case Role::param_encode:
          place_[id.index()] = codes_updated_weights(plan_, op) ? Place{2, use, 1} : Place{3, use, 0};
          break;
        case Role::param_decode:
          place_[id.index()] = {2, decodings.at(id), 3};
          break;
        default:
          place_[id.index()] = {1, 0, 0};  // as the graph has them
      }
    }
    // Replicas first: data parallelism reads what they leave. Then leg after leg, each with queues of its own; then
    // replicas of shards, which read what data parallelism leaves.
    std::vector<const std::vector<OpId>*> in_turn;
    for (const auto& [number, queue] : queues) in_turn.push_back(&queue);
    const auto in_line = [&](const std::vector<OpId>* queue) {
      const Operation& first = plan_.graph.op(queue->front());
      const int step = first.role == Role::replica_reduce ? 0 : first.role == Role::grad_reduce ? 1 : 2;
      return std::pair(step, first.leg);
    };
    std::stable_sort(in_turn.begin(), in_turn.end(),
                     [&](const auto* a, const auto* b) { return in_line(a) < in_line(b); });
    // What is held back are those that no other reduction but the replicas' comes before.
    const auto first =
        std::find_if(in_turn.begin(), in_turn.end(), [&](const auto* queue) { return in_line(queue).first > 0; });
    for (auto queue = in_turn.begin(); queue != in_turn.end(); ++queue) {
      fill_link(**queue, held && queue >= first && in_line(*queue) == in_line(*first));
    }
    std::stable_sort(update.begin(), update.end(),
                     [&](OpId a, OpId b) { return place_[a.index()] < place_[b.index()]; });
  }

  double ready(OpId id) const {
    double latest = 0;
    for (const Read& read : plan_.graph.op(id).reads) {
      for (const OpId writer : writers_[read.value.index()]) latest = std::max(latest, ended_[writer.index()]);
    }
    return latest;
  }

  // One after the other, the most urgent of those that are ready; where another class of the transfers has decided, as
  // it did.
  void fill_link(const std::vector<OpId>& queue, bool held) {
    std::vector<OpId> waiting = queue;
    std::map<OpId, double> ready_at;
    for (const OpId id : queue) ready_at[id] = ready(id);
    if (held) hold(ready_at);
    std::set<std::tuple<std::int32_t, std::int32_t, OpId>> chosen_from;  // turn of another class, use
    std::stable_sort(waiting.begin(), waiting.end(), [&](OpId a, OpId b) { return ready_at[a] < ready_at[b]; });
    const bool is_decided = decided_.contains(plan_.graph.op(queue.front()).communication->transfer);
    double free = 0;
    for (std::size_t next = 0; next < waiting.size() || !chosen_from.empty();) {
      if (chosen_from.empty()) free = std::max(free, ready_at[waiting[next]]);
      for (; next < waiting.size() && (is_decided || ready_at[waiting[next]] <= free); ++next) {
        chosen_from.insert({turn(waiting[next]), use_[waiting[next].index()], waiting[next]});
      }
      const OpId id = std::get<2>(*chosen_from.begin());
      chosen_from.erase(chosen_from.begin());
      const double start = std::max(free, ready_at[id]);
      free = start + static_cast<double>(cost_.alone(plan_.graph.op(id)).value);
      ended_[id.index()] = free;
      place_[id.index()] = {0, start, 0};
      if (held && ready_at.size() == queue.size()) plan_.issues[id].blocking = true;  // the first holds the rest
      ready_at.erase(id);
      const std::int32_t transfer = plan_.graph.op(id).communication->transfer;
      if (transfer >= 0) decided_.try_emplace(transfer, static_cast<std::int32_t>(decided_.size()));
    }
  }

  // All are ready when the last is.
  static void hold(std::map<OpId, double>& ready_at) {
    double last = 0;
    for (const auto& [id, at] : ready_at) last = std::max(last, at);
    for (auto& [id, at] : ready_at) at = last;
  }

  std::int32_t turn(OpId id) const {
    const auto found = decided_.find(plan_.graph.op(id).communication->transfer);
    return found == decided_.end() ? -1 : found->second;
  }

  Plan& plan_;
  const CostModel& cost_;
  std::vector<std::int32_t> use_;
  OpLists writers_;
  std::vector<double> ended_;                     // by operation, nanoseconds in its class's iteration
  std::vector<Place> place_;                      // by operation of an update block
  std::map<std::int32_t, std::int32_t> decided_;  // by transfer across classes: its turn
};

// Compute that fills the time in which forward waits for parameters.
void update_beside(Plan& plan) {
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (op.role != Role::update && !codes_updated_weights(plan, op)) continue;
    plan.issues[i].queue = extra_queue_of(plan.classes[op.rank_class]);
  }
}

// Only the norm is waited for on the spot: everything needs it.
void reduce_beside(Plan& plan) {
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (op.per_micro_batch || !op.is_transfer() || op.role == Role::norm_reduce) continue;
    plan.issues[i].blocking = false;
    if (op.role == Role::replica_reduce) {
      plan.issues[i].queue = communication_queue(plan.classes[op.rank_class], "tp replicas");
    }
  }
}

// A gather is urgent and comes late; behind the next reduction it would wait.
void gather_apart(Plan& plan) {
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (op.role != Role::param_gather || op.per_micro_batch || op.rule != Substitution::none) continue;
    ClassPlan& c = plan.classes[op.rank_class];
    plan.issues[i].queue = communication_queue(c, std::string(name_of(op.communication->group)) + " gather");
  }
}

}  // namespace

void urgent_first(Plan& plan, const CostModel& cost, const UrgentFirstOptions& options) {
  reduce_beside(plan);
  gather_apart(plan);
  update_beside(plan);
  if (options.postpone) postpone_weight_grads(plan, cost);
  UrgentFirst(plan, cost).run(options.hold_back);
}

}  // namespace weft
