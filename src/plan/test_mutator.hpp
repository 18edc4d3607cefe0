// Random changes to plans, each of one kind that a wrong planner, a damaged file or a careless hand could make.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "graph/operation_part.hpp"
#include "plan/plan.hpp"

namespace weft::test {

class Mutator {
 public:
  Mutator(Plan& plan, std::uint64_t seed) : plan_(plan), random_(seed) {}

  // Changes the plan in one place and says how.
  std::string mutate() {
    class_ = below(plan_.classes.size());
    switch (below(20)) {
      case 0:
        return swap_slots();
      case 1:
        return drop_slot();
      case 2:
        return repeat_slot();
      case 3:
        return move_operation();
      case 4:
        return swap_operations();
      case 5:
        return change_copies();
      case 6:
        return shift_offset();
      case 7:
        return share_offset();
      case 8:
        return flip_blocking();
      case 9:
        return swap_transfers();
      case 10:
        return change_part();
      case 11:
        return retarget();
      case 12:
        return shrink_memory();
      case 13:
        return lay_over_parts();
      case 14:
        return rename_queue();
      case 15:
        return drop_waits();
      case 16:
        return change_wait();
      case 17:
        return shift_frame();
      case 18:
        return change_program();
      default:
        return change_queue();
    }
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  ClassPlan& plan() { return plan_.classes[class_]; }

  // A part claims other pieces of its operation, or a whole operation to be a part.
  std::string change_part() {
    std::vector<std::size_t> parts;
    for (std::size_t i = 0; i < plan_.graph.operations.size(); ++i) {
      if (is_part(plan_.graph.operations[i])) parts.push_back(i);
    }
    const std::size_t i = parts.empty() ? below(plan_.graph.operations.size()) : parts[below(parts.size())];
    Origin& origin = plan_.graph.operations[i].origins.front();
    switch (below(3)) {
      case 0:
        origin.begin = (origin.begin + 1) % origin.of;
        origin.end = origin.begin + 1;
        break;
      case 1:
        origin.of *= 2;
        break;
      default:
        origin.end = origin.of;
    }
    return "change part";
  }

  // An operation reads or writes another value of the same size.
  std::string retarget() {
    Operation& op = plan_.graph.operations[below(plan_.graph.operations.size())];
    const bool reads = !op.reads.empty() && (op.writes.empty() || below(2) == 0);
    ValueId& value = reads ? op.reads[below(op.reads.size())].value : op.writes[below(op.writes.size())].value;
    std::vector<ValueId> others;
    for (std::size_t v = 0; v < plan_.graph.values.size(); ++v) {
      const Value &a = plan_.graph.values[v], &b = plan_.graph.value(value);
      if (a.rank_class == b.rank_class && a.bytes() == b.bytes() && a.kind == b.kind)
        others.push_back(make_id<ValueId>(v));
    }
    value = others[below(others.size())];
    return "retarget";
  }

  std::string shrink_memory() {
    plan().memory = Bytes{plan().memory.value - static_cast<std::int64_t>(1 + below(1000))};
    return "shrink memory";
  }

  std::string swap_slots() {
    // Mostly neighbours: those mutations are the ones that are nearly right.
    std::vector<IssueSlot>& order = plan().order;
    const std::size_t i = below(order.size() - 1);
    std::swap(order[i], order[below(3) > 0 ? i + 1 : below(order.size())]);
    return "swap slots";
  }
  std::string drop_slot() {
    plan().order.erase(plan().order.begin() + static_cast<std::ptrdiff_t>(below(plan().order.size())));
    return "drop slot";
  }
  std::string repeat_slot() {
    std::vector<IssueSlot>& order = plan().order;
    const IssueSlot slot = order[below(order.size())];
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(below(order.size())), slot);
    return "repeat slot";
  }
  std::vector<OpId>& some_block() {
    for (;;) {
      std::vector<OpId>& operations = plan().blocks[below(plan().blocks.size())].operations;
      if (operations.size() > 1) return operations;
    }
  }
  std::string move_operation() {
    std::vector<OpId>& operations = some_block();
    const auto from = operations.begin() + static_cast<std::ptrdiff_t>(below(operations.size()));
    const auto to = operations.begin() + static_cast<std::ptrdiff_t>(below(operations.size()));
    from < to ? std::rotate(from, from + 1, to + 1) : std::rotate(to, from, from + 1);
    return "move operation";
  }
  std::string swap_operations() {
    std::vector<OpId>& operations = some_block();
    const std::size_t i = below(operations.size() - 1);
    std::swap(operations[i], operations[i + 1]);
    return "swap operations";
  }
  std::string change_copies() {
    // Of a value that has several; in a plan without any, of any value.
    std::vector<Placement*> several;
    for (Placement& place : plan_.placements) {
      if (place.copies > 1) several.push_back(&place);
    }
    Placement& place =
        several.empty() ? plan_.placements[below(plan_.placements.size())] : *several[below(several.size())];
    place.copies = std::max(1, place.copies + (below(4) > 0 ? -1 : 1));
    return "change copies";
  }
  std::string shift_offset() {
    Placement& place = plan_.placements[below(plan_.placements.size())];
    const auto distance = static_cast<std::int64_t>(kAlignment << below(8));
    place.offset.value = std::max<std::int64_t>(0, place.offset.value + (below(2) == 0 ? distance : -distance));
    return "shift offset";
  }
  std::string share_offset() {
    const std::size_t i = below(plan_.placements.size()), j = below(plan_.placements.size());
    plan_.placements[i].offset = plan_.placements[j].offset;
    return "share offset";
  }
  // Another value that its block alone uses lies where parts write theirs one after the other.
  std::string lay_over_parts() {
    std::vector<std::size_t> in_parts, others;
    for (const Operation& op : plan_.graph.operations) {
      for (const Write& write : op.writes) {
        if (is_part(op) && plan_.graph.value(write.value).per_micro_batch) in_parts.push_back(write.value.index());
      }
    }
    for (std::size_t v = 0; v < plan_.placements.size(); ++v) {
      if (plan_.graph.values[v].per_micro_batch && plan_.placements[v].frame < 0) others.push_back(v);
    }
    if (in_parts.empty() || others.empty()) return share_offset();
    const std::size_t under = in_parts[below(in_parts.size())], over = others[below(others.size())];
    if (plan_.graph.values[under].rank_class != plan_.graph.values[over].rank_class) return share_offset();
    const std::size_t size = aligned(plan_.graph.values[under].bytes()).value / kAlignment;
    plan_.placements[over].offset = {plan_.placements[under].offset.value +
                                     static_cast<std::int64_t>(below(std::max<std::size_t>(1, size))) * kAlignment};
    return "lay over parts";
  }
  // In one class; in another one, too, it may have the name of one that is there.
  std::string rename_queue() {
    std::vector<Queue>& queues = plan().queues;
    if (queues.size() < 2) return change_queue();
    Queue& queue = queues[1 + below(queues.size() - 1)];
    queue.name = below(2) == 0 ? "another name" : queues[1 + below(queues.size() - 1)].name;
    return "rename queue";
  }
  std::string drop_waits() {
    if (!plan_.waits.empty() && below(2) == 0) {
      plan_.waits.erase(plan_.waits.begin() + static_cast<std::ptrdiff_t>(below(plan_.waits.size())));
      return "drop waits";
    }
    std::vector<Placement*> waiting;
    for (Placement& place : plan_.placements) {
      if (place.waits) waiting.push_back(&place);
    }
    if (waiting.empty()) return change_copies();
    waiting[below(waiting.size())]->waits = false;
    return "drop waits";
  }
  std::string change_wait() {
    if (plan_.waits.empty()) return flip_blocking();
    Wait& wait = plan_.waits[below(plan_.waits.size())];
    switch (below(3)) {
      case 0:
        wait.executions = 1 - wait.executions;
        break;
      case 1:
        wait.until = make_id<OpId>(below(plan_.graph.operations.size()));
        break;
      default:
        wait.operation = make_id<OpId>(below(plan_.graph.operations.size()));
    }
    return "change wait";
  }
  std::string shift_frame() {
    if (plan().frames.empty()) return shift_offset();
    std::vector<Bytes>& base = plan().frames[below(plan().frames.size())].base;
    if (below(2) == 0) {
      std::swap(base[below(base.size())], base[below(base.size())]);
    } else {
      base[below(base.size())].value += kAlignment << below(8);
    }
    return "shift frame";
  }
  // Of one class's side of a transfer.
  std::string change_program() {
    Communication& transfer = *plan_.graph.operations[some_transfer()].communication;
    switch (below(3)) {
      case 0:
        transfer.algorithm = plan_.graph.operations[some_transfer()].communication->algorithm;
        break;
      case 1:
        transfer.parts = 1 + static_cast<std::int32_t>(below(4));
        break;
      default:
        transfer.bytes.value += below(2) == 0 ? 4 : -4;
    }
    return "change program";
  }
  std::size_t some_transfer() {
    for (;;) {
      const std::size_t i = below(plan_.issues.size());
      if (plan_.graph.operations[i].is_transfer()) return i;
    }
  }
  std::string flip_blocking() {
    bool& blocking = plan_.issues[some_transfer()].blocking;
    blocking = !blocking;
    return "flip blocking";
  }
  // Two transfers of a class exchange their numbers.
  std::string swap_transfers() {
    const std::size_t i = some_transfer(), j = some_transfer();
    Operation &a = plan_.graph.operations[i], &b = plan_.graph.operations[j];
    if (a.rank_class == b.rank_class) std::swap(a.communication->transfer, b.communication->transfer);
    return "swap transfers";
  }
  std::string change_queue() {
    const std::size_t i = some_transfer();
    IdVector<QueueId, Queue>& queues = plan_.classes[plan_.graph.operations[i].rank_class].queues;
    if (below(2) == 0) queues.push_back({"another", QueueKind::communication});
    do plan_.issues[i].queue = make_id<QueueId>(1 + below(queues.size() - 1));
    while (queues[plan_.issues[i].queue].kind != QueueKind::communication);
    return "change queue";
  }

  Plan& plan_;
  std::mt19937_64 random_;
  std::size_t class_ = 0;
};

}  // namespace weft::test
