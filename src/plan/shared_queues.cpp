#include "plan/shared_queues.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace weft {
namespace {

// Each queue is at first in a set of its own.
class QueueSets {
 public:
  explicit QueueSets(const Plan& plan) {
    std::size_t count = 0;
    for (const ClassPlan& c : plan.classes) {
      first_.push_back(count);
      count += c.queues.size();
    }
    parent_.resize(count);
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  std::size_t index(ClassId rank_class, QueueId queue) const { return first_[rank_class] + queue.index(); }
  // Returns the least queue of its set.
  std::size_t find(std::size_t queue) const {
    while (parent_[queue] != queue) queue = parent_[queue];
    return queue;
  }
  void join(std::size_t a, std::size_t b) {
    const auto [least, other] = std::minmax({find(a), find(b)});
    parent_[other] = least;
  }

 private:
  IdVector<ClassId, std::size_t> first_;  // the index of its queue 0
  std::vector<std::size_t> parent_;       // by index of a queue
};

QueueSets join_queues(const Plan& plan) {
  QueueSets sets(plan);
  std::map<std::int32_t, std::size_t> of_transfer;
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (!op.communication || op.communication->transfer < 0) continue;
    const std::size_t queue = sets.index(op.rank_class, plan.issues[i].queue);
    sets.join(queue, of_transfer.try_emplace(op.communication->transfer, queue).first->second);
  }
  return sets;
}

}  // namespace

SharedQueues::SharedQueues(const Plan& plan) {
  const QueueSets sets = join_queues(plan);
  std::map<std::pair<std::size_t, ClassId>, OpId> first_on;  // by set and class
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    if (!op.communication || conflict_) continue;
    const QueueId queue = plan.issues[id].queue;
    const std::size_t set = sets.find(sets.index(op.rank_class, queue));
    const OpId first = first_on.try_emplace({set, op.rank_class}, id).first->second;
    if (plan.issues[first].queue != queue) conflict_ = {first, id};
  }

  std::map<std::size_t, std::vector<ClassId>> classes_of;  // by set, in the order of its first queue
  for (const ClassId c : plan.classes.ids()) {
    for (const QueueId q : plan.classes[c].queues.ids()) classes_of[sets.find(sets.index(c, q))].push_back(c);
  }
  IdVector<ClassId, std::set<std::int32_t>> taken(plan.classes.size());
  std::map<std::size_t, std::int32_t> number_of;  // by set
  for (const auto& [set, classes] : classes_of) {
    std::int32_t number = 0;
    const auto is_taken = [&](ClassId c) { return taken[c].contains(number); };
    while (std::any_of(classes.begin(), classes.end(), is_taken)) ++number;
    for (const ClassId c : classes) taken[c].insert(number);
    number_of[set] = number;
  }
  for (const ClassId c : plan.classes.ids()) {
    IdVector<QueueId, std::int32_t>& numbers = numbers_.emplace_back();
    for (const QueueId q : plan.classes[c].queues.ids()) {
      numbers.push_back(number_of.at(sets.find(sets.index(c, q))));
    }
  }
}

}  // namespace weft
