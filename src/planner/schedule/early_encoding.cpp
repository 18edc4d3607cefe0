#include "planner/schedule/early_encoding.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "graph/op_lists.hpp"
#include "planner/schedule/next_use.hpp"
#include "planner/schedule/weight_codes.hpp"

namespace weft {
namespace {

bool encodes_gradient(const Operation& op) {
  return op.role == Role::grad_encode && op.part == 0;
}

// Transfers that read gradients of backward, encoded or as they are.
bool carries_gradients(const Operation& op) {
  return op.role == Role::grad_exchange || op.role == Role::grad_reduce || op.role == Role::node_reduce;
}

// Returns whether one class computes forward, backward and update, one whole block after the other.
bool is_plain_step(const Plan& plan) {
  if (plan.classes.size() != 1 || plan.layout.pp > 1 || plan.layout.vpp > 1 || plan.layout.layer_group > 1 ||
      plan.layout.has_slices() || has_sections(plan.classes.front())) {
    return false;
  }
  const ClassPlan& c = plan.classes.front();
  return c.order.size() >= 2 && block_of(c, c.order.back()).kind == BlockKind::update &&
         block_of(c, c.order[c.order.size() - 2]).kind == BlockKind::backward;
}

class EarlyEncoding {
 public:
  EarlyEncoding(Plan& plan, const CostModel& cost, bool urgent)
      : plan_(plan),
        class_(plan.classes.front()),
        cost_(cost),
        urgent_(urgent),
        backward_(block_of(class_, class_.order[class_.order.size() - 2]).operations),
        update_(block_of(class_, BlockKind::update).operations),
        writers_(writers_by_value(plan.graph)),
        position_(plan.graph.operations.size(), -1),
        ended_(plan.graph.operations.size(), 0) {
    for (std::size_t i = 0; i < backward_.size(); ++i) position_[backward_[i].index()] = static_cast<std::int32_t>(i);
    // A transfer beside compute stands where the first of its bucket does, and waits for the last all the same.
    for (const OpId id : backward_) position_[id.index()] = last_source(id);
    for (const OpId id : update_) position_[id.index()] = latest_position(id);
    if (urgent_) use_ = next_use(plan.graph);
  }

  void run() {
    std::vector<OpId> encodings, replicas, transfers, rest;
    for (const OpId id : update_) {
      const Operation& op = plan_.graph.op(id);
      (is_late(id)                       ? rest
       : encodes_gradient(op)            ? encodings
       : op.role == Role::replica_reduce ? replicas
       : carries_gradients(op)           ? transfers
                                         : rest)
          .push_back(id);
    }
    // Sums inside nodes may begin early too, but what is encoded between nodes waits for them. Where shards of
    // gradients are reduced in every micro-batch, all of that is in backward already.
    const auto sums_in_node = [&](OpId id) { return plan_.graph.op(id).role == Role::node_reduce; };
    if (encodings.empty() && std::ranges::none_of(transfers, sums_in_node)) return;
    time_chain(encodings);
    take_by_link(replicas, 0);
    take_in_waves(transfers);  // some read what replicas leave
    if (urgent_) order_rest(rest);
    std::vector<OpId> early = encodings;
    early.insert(early.end(), replicas.begin(), replicas.end());
    early.insert(early.end(), transfers.begin(), transfers.end());
    std::ranges::stable_sort(early, {}, [&](OpId id) { return begun_or_encoded(id); });
    update_ = early;
    update_.insert(update_.end(), rest.begin(), rest.end());
    interleave(early.size());
  }

 private:
  double nanos_of(OpId id) const { return static_cast<double>(cost_.alone(plan_.graph.op(id)).value); }

  // Compute would wait for the replicas of a gradient in the middle of backward.
  bool is_late(OpId id) const {
    const Operation& op = plan_.graph.op(id);
    bool late = false;
    for_each_source(id, [&](OpId writer) {
      const Operation& source = plan_.graph.op(writer);
      late |= (encodes_gradient(op) && source.is_transfer()) || (op.role == Role::grad_exchange && is_late(writer));
    });
    return late;
  }

  // Returns where in backward an operation of it can have begun: its own place, or behind all that it waits for there.
  std::int32_t last_source(OpId id) const {
    std::int32_t last = position_[id.index()];
    if (!plan_.graph.op(id).is_transfer()) return last;
    for_each_source(id, [&](OpId writer) {
      if (position_[writer.index()] >= 0) last = std::max(last, last_source(writer));
    });
    return last;
  }

  // Returns where in backward the last operation stands that this one waits for, by way of others of the update.
  std::int32_t latest_position(OpId id) const {
    std::int32_t latest = -1;
    for_each_source(id, [&](OpId writer) { latest = std::max(latest, position_[writer.index()]); });
    return latest;
  }

  // Writers stand before their readers in the update block.
  template <class Visit>
  void for_each_source(OpId id, const Visit& visit) const {
    for (const Read& read : plan_.graph.op(id).reads) {
      if (read.distance != 0) continue;
      for (const OpId writer : writers_[read.value.index()]) visit(writer);
    }
  }

  // Says when backward and the encodings within it end.
  void time_chain(std::vector<OpId>& encodings) {
    std::ranges::stable_sort(encodings, {}, [&](OpId id) { return position_[id.index()]; });
    double now = 0;
    std::size_t next = 0;
    for (std::size_t i = 0; i <= backward_.size(); ++i) {
      const bool is_behind = i == backward_.size();
      for (; next < encodings.size() && (is_behind || position_[encodings[next].index()] < static_cast<int>(i));
           ++next) {
        now += nanos_of(encodings[next]);
        ended_[encodings[next].index()] = now;
      }
      if (is_behind) break;
      const OpId id = backward_[i];
      if (!plan_.graph.op(id).is_transfer() || plan_.issues[id].blocking) now += nanos_of(id);
      ended_[id.index()] = now;
    }
    chain_ends_ = now;
  }

  double ready(OpId id) const {
    double latest = 0;
    for_each_source(id, [&](OpId writer) { latest = std::max(latest, ended_[writer.index()]); });
    return latest;
  }

  // Orders transfers as a link takes them that is free from then on.
  void take_by_link(std::vector<OpId>& transfers, double free) {
    std::set<std::pair<double, OpId>> waiting;
    for (const OpId id : transfers) waiting.insert({ready(id), id});
    std::set<std::tuple<std::int32_t, double, OpId>> chosen_from;
    transfers.clear();
    while (!waiting.empty() || !chosen_from.empty()) {
      if (chosen_from.empty()) free = std::max(free, waiting.begin()->first);
      while (!waiting.empty() && waiting.begin()->first <= free) {
        const auto [at, id] = *waiting.begin();
        chosen_from.insert({urgent_ ? use_[id.index()] : 0, at, id});
        waiting.erase(waiting.begin());
      }
      const OpId id = std::get<2>(*chosen_from.begin());
      chosen_from.erase(chosen_from.begin());
      begun_.insert({id, free});
      free += nanos_of(id);
      ended_[id.index()] = free;
      transfers.push_back(id);
    }
  }

  // Legs of one transfer read each other; each wave of them has a queue of its own.
  void take_in_waves(std::vector<OpId>& transfers) {
    std::vector<OpId> taken, rest = transfers;
    while (!rest.empty()) {
      const std::set<OpId> waiting(rest.begin(), rest.end());
      std::vector<OpId> wave, later;
      for (const OpId id : rest) {
        bool waits = false;
        for_each_source(id, [&](OpId writer) { waits |= waiting.contains(writer); });
        (waits ? later : wave).push_back(id);
      }
      take_by_link(wave, 0);
      taken.insert(taken.end(), wave.begin(), wave.end());
      rest = std::move(later);
    }
    transfers = std::move(taken);
  }

  double begun_or_encoded(OpId id) const {
    const auto begun = begun_.find(id);
    return begun == begun_.end() ? ended_[id.index()] : begun->second;
  }

  // What follows the first transfer of gradients. Where whole gradients are updated, each goes on when its last
  // transfer has ended; where shards are, in the order in which the next forward needs them.
  void order_rest(std::vector<OpId>& rest) {
    const bool clips = plan_.layout.clip_grad > 0;
    enum Stage : std::uint8_t { late, sums, gathers, decoded_for_norm, norm, updates };
    const auto stage_of = [&](const Operation& op) {
      if (encodes_gradient(op) || op.role == Role::grad_exchange) return late;
      if (op.role == Role::grad_gather) return gathers;
      if (op.role == Role::grad_encode || (op.role == Role::grad_merge && is_encoded_again(op))) return sums;
      if (op.role == Role::grad_merge || op.role == Role::grad_decode || op.role == Role::node_gather) {
        return clips ? decoded_for_norm : updates;
      }
      return op.role == Role::update || op.role == Role::param_gather || codes_updated_weights(plan_, op) ? updates
                                                                                                          : norm;
    };
    std::vector<OpId> sums_again;
    for (const OpId id : rest) {
      if (plan_.graph.op(id).role == Role::grad_gather) sums_again.push_back(id);
    }
    for (const OpId id : rest) ended_[id.index()] = std::max(ready(id), chain_ends_);
    double link = chain_ends_;
    for (const auto& [id, begun] : begun_) link = std::max(link, ended_[id.index()]);
    take_by_link(sums_again, link);
    for (const OpId id : rest) {
      if (plan_.graph.op(id).role != Role::grad_gather) ended_[id.index()] = std::max(ready(id), chain_ends_);
    }
    // A weight that backward still reads must not be updated yet: weight gradients may stand before the input gradients
    // beside them. Behind the merge or the update of the gradient that backward finishes last, all weights are free.
    const std::int32_t last = last_position(rest);
    double guarded = std::numeric_limits<double>::max();
    for (const OpId id : rest) {
      const Role role = plan_.graph.op(id).role;
      const bool guards = role == Role::update || role == Role::grad_merge;
      if (guards && position_[id.index()] == last) guarded = std::min(guarded, ended_[id.index()]);
    }
    const std::map<OpId, double> decodings = turns_of_decodings(plan_, rest, use_);
    const auto place_of = [&](OpId id) {
      const Operation& op = plan_.graph.op(id);
      const Stage stage = stage_of(op);
      int turn = turn_of(op.role);
      if (op.role == Role::param_decode) return std::tuple(stage, decodings.at(id), turn);
      const bool by_use = stage == updates && plan_.layout.zero > 0;
      double at = stage == norm || stage == late ? 0.0
                  : by_use                       ? static_cast<double>(use_[id.index()])
                  : is_begun(id)                 ? begun_.at(id)
                                                 : ended_[id.index()];
      if (op.role == Role::update && !by_use && at <= guarded) {
        at = guarded;
        turn = position_[id.index()] == last ? 2 : 3;
      }
      return std::tuple(stage, at, turn);
    };
    std::ranges::stable_sort(rest, {}, place_of);
    for (const OpId id : rest) {
      const Role role = plan_.graph.op(id).role;
      if (role == Role::grad_encode || role == Role::grad_merge || role == Role::grad_decode) {
        plan_.issues[id].queue = extra_queue_of(class_);
      }
    }
  }

  std::int32_t last_position(const std::vector<OpId>& operations) const {
    std::int32_t last = -1;
    for (const OpId id : operations) last = std::max(last, position_[id.index()]);
    return last;
  }

  // What follows from one gradient stands in this order. Updates that must wait for others have turn 3.
  static int turn_of(Role role) {
    switch (role) {
      case Role::node_gather:
        return 1;
      case Role::update:
        return 2;
      case Role::param_encode:
        return 4;
      case Role::param_gather:
        return 5;
      case Role::param_decode:
        return 6;
      default:
        return 0;
    }
  }

  bool is_begun(OpId id) const { return begun_.contains(id); }

  bool is_encoded_again(const Operation& merge) const {
    return plan_.layout.zero == 0 && plan_.graph.value(write_of(merge, Operand::gradient)).elements() <
                                         plan_.graph.value(source_gradient(merge)).elements();
  }

  // The gradient whose encoding an operation decodes.
  ValueId source_gradient(const Operation& merge) const {
    const auto writer_of = [&](ValueId value) -> const Operation& {
      return plan_.graph.op(writers_[value.index()].front());
    };
    const Operation& exchange = writer_of(read_of(merge, Operand::encoded));
    return read_of(writer_of(read_of(exchange, Operand::payload)), Operand::gradient);
  }

  // Cuts backward behind the gradients that are encoded or sent next, and the update before that.
  void interleave(std::size_t early) {
    const IssueSlot update = class_.order.back();
    class_.order.pop_back();
    const IssueSlot backward = class_.order.back();
    class_.order.pop_back();
    const auto end = static_cast<std::int32_t>(backward_.size());
    std::int32_t done = 0, first = 0;
    const auto add = [&](const IssueSlot& slot, std::int32_t from, std::int32_t to) {
      if (from < to) class_.order.push_back({slot.block, slot.micro_batch, from, to});
    };
    for (std::size_t i = 0; i < early; ++i) {
      const std::int32_t behind = position_[update_[i].index()] + 1;
      if (behind == end) break;
      if (behind <= done) continue;
      add(update, first, static_cast<std::int32_t>(i));
      add(backward, done, behind);
      first = static_cast<std::int32_t>(i);
      done = behind;
    }
    const auto waits_for_all = [&](OpId id) { return position_[id.index()] + 1 == end; };
    const auto last = static_cast<std::int32_t>(
        std::find_if(update_.begin() + first, update_.begin() + static_cast<std::ptrdiff_t>(early), waits_for_all) -
        update_.begin());
    add(update, first, last);
    class_.order.push_back({backward.block, backward.micro_batch, done, -1});
    class_.order.push_back({update.block, update.micro_batch, last, -1});
  }

  Plan& plan_;
  ClassPlan& class_;
  const CostModel& cost_;
  bool urgent_;
  const std::vector<OpId>& backward_;
  std::vector<OpId>& update_;
  OpLists writers_;
  std::vector<std::int32_t> position_;  // by operation, in backward; of the update, of the last that it waits for
  std::vector<double> ended_;           // by operation, nanoseconds since backward began
  std::vector<std::int32_t> use_;
  std::map<OpId, double> begun_;  // transfers that the link has taken
  double chain_ends_ = 0;
};

}  // namespace

void encode_during_backward(Plan& plan, const CostModel& cost, bool urgent) {
  if (plan.layout.compress.is_on() && is_plain_step(plan)) EarlyEncoding(plan, cost, urgent).run();
}

}  // namespace weft
