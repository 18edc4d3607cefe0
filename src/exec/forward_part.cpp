#include "exec/forward_part.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"

namespace weft {
namespace {

IdVector<InstanceId, bool> needed_for_loss(const WholePlan& whole) {
  const Plan& plan = whole.plan();
  const Unfolded& unfolded = whole.unfolded();
  const Instances& instances = unfolded.instances();
  IdVector<InstanceId, bool> needed(instances.size(), false);
  std::vector<InstanceId> open;
  const auto need = [&](InstanceId i) {
    if (needed[i]) return;
    needed[i] = true;
    open.push_back(i);
  };
  for (const InstanceId i : instances.ids()) {
    const Operation& op = plan.graph.op(instances[i].operation);
    if (op.role == Role::loss && op.phase == Phase::forward) need(i);
  }
  WEFT_CHECK(!open.empty());
  while (!open.empty()) {
    const InstanceId i = open.back();
    open.pop_back();
    for (const Edge& edge : unfolded.waits_for(i)) {
      const Operation& from = plan.graph.op(instances[edge.from].operation);
      const bool updates = from.phase == Phase::optimizer && !from.is_transfer();
      if (edge.kind == EdgeKind::data && !updates) need(edge.from);
    }
    if (!instances[i].joint.valid()) continue;
    for (const InstanceId member : unfolded.members(instances[i].joint)) need(member);
  }
  return needed;
}

// Follows two iterations of the forward part of one class through its memory, in issue order.
class MemoryUse {
 public:
  explicit MemoryUse(const WholePlan& whole) : plan_(whole.plan()), unfolded_(whole.unfolded()) {}

  void follow(const std::vector<InstanceId>& instances, IdVector<InstanceId, std::vector<Edge>>& waits) {
    lay_out(instances);
    for (int iteration = 0; iteration < 2; ++iteration) {
      for (const InstanceId i : instances) {
        const Operation& op = plan_.graph.op(instance(i).operation);
        const Access who{i, iteration};
        for (const Read& read : op.reads) use(read.value, who, nullptr);
        for (const Write& write : op.writes) {
          use(write.value, who, iteration == 1 ? &waits[i] : nullptr, true);
        }
      }
    }
  }

 private:
  struct Access {
    InstanceId instance;
    int iteration = 0;
  };
  struct Content {
    ValueId value;
    MicroBatch micro_batch = kOncePerStep;
    int iteration = -1;
    friend bool operator==(const Content&, const Content&) = default;
  };
  // A stretch of memory inside which no value begins or ends.
  struct Stretch {
    Content content;
    std::vector<Access> accesses;   // to what it holds
    std::vector<Access> displaced;  // to what it held before
  };

  const Instance& instance(InstanceId i) const { return unfolded_.instances()[i]; }
  MicroBatch micro_batch_of(ValueId value, InstanceId i) const {
    return plan_.graph.value(value).per_micro_batch ? instance(i).micro_batch : kOncePerStep;
  }
  std::int64_t begin_of(ValueId value, InstanceId i) const {
    return address(plan_, value, micro_batch_of(value, i)).value;
  }
  std::int64_t end_of(ValueId value, InstanceId i) const {
    return begin_of(value, i) + plan_.graph.value(value).bytes().value;
  }

  // Cuts the memory where any value begins or ends.
  void lay_out(const std::vector<InstanceId>& instances) {
    stretches_.clear();
    for (const InstanceId i : instances) {
      const Operation& op = plan_.graph.op(instance(i).operation);
      const auto cut = [&](ValueId value) {
        stretches_[begin_of(value, i)];
        stretches_[end_of(value, i)];
      };
      for (const Read& read : op.reads) cut(read.value);
      for (const Write& write : op.writes) cut(write.value);
    }
  }

  void use(ValueId value, Access who, std::vector<Edge>* waits, bool writes = false) {
    const Content content{value, micro_batch_of(value, who.instance), who.iteration};
    const auto end = stretches_.lower_bound(end_of(value, who.instance));
    for (auto at = stretches_.lower_bound(begin_of(value, who.instance)); at != end; ++at) {
      Stretch& stretch = at->second;
      if (writes && stretch.content != content) {
        stretch.displaced = std::exchange(stretch.accesses, {});
        stretch.content = content;
      }
      stretch.accesses.push_back(who);
      if (waits == nullptr) continue;
      for (const Access& before : stretch.displaced) {
        if (before.instance == who.instance && before.iteration == who.iteration) continue;
        const Edge edge{before.instance, static_cast<std::int8_t>(who.iteration - before.iteration), EdgeKind::reuse};
        const auto same = [&](const Edge& e) { return e.from == edge.from && e.distance == edge.distance; };
        if (std::ranges::none_of(*waits, same)) waits->push_back(edge);
      }
    }
  }

  const Plan& plan_;
  const Unfolded& unfolded_;
  std::map<std::int64_t, Stretch> stretches_;  // by first byte, up to the next
};

}  // namespace

ForwardPart forward_part(const WholePlan& whole) {
  ForwardPart part{needed_for_loss(whole), {}};
  part.waits.resize(part.needed.size());
  for (const ClassId c : whole.plan().classes.ids()) {
    std::vector<InstanceId> own;
    for (const InstanceId i : whole.unfolded().instances_of(c)) {
      if (part.needed[i]) own.push_back(i);
    }
    MemoryUse(whole).follow(own, part.waits);
  }
  return part;
}

}  // namespace weft
