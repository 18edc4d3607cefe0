#include "planner/schedule/layer_order.hpp"

#include <algorithm>
#include <vector>

#include "graph/op_lists.hpp"

namespace weft {
namespace {

// Positions in a block: from `begin` to the last of `ends`. Micro-batches that pass it abreast take turns at each of
// them.
struct Section {
  BlockId block;
  std::int32_t begin = 0;
  std::vector<std::int32_t> ends;
};

class SectionsOfBlock {
 public:
  SectionsOfBlock(const Plan& plan, const ClassPlan& class_plan, const OpLists& writers, BlockId block)
      : plan_(plan), block_(class_plan.blocks[block]), writers_(writers), id_(block) {}

  // Backward meets the layers in the other order, and its first section is where forward's last one is.
  std::vector<Section> cut(const LayerOrder& choice) const {
    std::vector<Section> sections{{id_, 0, {}}};
    std::int32_t reached = -1;  // the section of the layers
    for (std::int32_t i = 0; i < std::ssize(block_.operations); ++i) {
      const Operation& op = plan_.graph.op(block_.operations[i]);
      if (op.is_transfer()) continue;  // they may run ahead or behind
      if (op.layer >= 0) {
        const std::int32_t of_operation = op.layer / choice.layers;
        const bool begins = block_.kind == BlockKind::forward ? of_operation > reached : of_operation < reached;
        if (reached >= 0 && begins) {
          sections.back().ends.push_back(i);
          sections.push_back({id_, i, {}});
        }
        if (reached < 0 || begins) reached = of_operation;
      }
      if (choice.abreast > 1 && i > sections.back().begin && waits_for_traffic(op)) sections.back().ends.push_back(i);
    }
    sections.back().ends.push_back(static_cast<std::int32_t>(block_.operations.size()));
    return sections;
  }

 private:
  // Whether it reads what a transfer beside compute makes of this micro-batch.
  bool waits_for_traffic(const Operation& op) const {
    return std::any_of(op.reads.begin(), op.reads.end(), [&](const Read& read) {
      const auto made_by = writers_[read.value.index()];
      return read.distance == 0 && std::any_of(made_by.begin(), made_by.end(), [&](OpId writer) {
               const Operation& made = plan_.graph.op(writer);
               return made.is_transfer() && made.per_micro_batch && !plan_.issues[writer].blocking;
             });
    });
  }

  const Plan& plan_;
  const IssueBlock& block_;
  const OpLists& writers_;
  BlockId id_;
};

class LayerOrderOfClass {
 public:
  LayerOrderOfClass(const Plan& plan, const ClassPlan& class_plan, const OpLists& writers, const LayerOrder& choice)
      : abreast_(choice.abreast) {
    for (const BlockId b : class_plan.blocks.ids()) {
      const BlockKind kind = class_plan.blocks[b].kind;
      if (kind != BlockKind::forward && kind != BlockKind::backward) continue;
      (kind == BlockKind::forward ? forward_ : backward_) = SectionsOfBlock(plan, class_plan, writers, b).cut(choice);
    }
  }

  bool is_possible() const { return forward_.size() > 1 && forward_.size() == backward_.size(); }

  // `group`: micro-batches, first to behind the last.
  void append(IdRange<MicroBatch> group, std::vector<IssueSlot>& order) const {
    for (std::size_t s = 0; s + 1 < forward_.size(); ++s) {
      for (const IdRange<MicroBatch>& few : in_rows(group)) pass(forward_[s], few, order);
    }
    for (const IdRange<MicroBatch>& few : in_rows(group)) {
      pass(forward_.back(), few, order);
      pass(backward_.front(), few, order);
    }
    for (std::size_t s = 1; s < backward_.size(); ++s) {
      for (const IdRange<MicroBatch>& few : in_rows(group)) pass(backward_[s], few, order);
    }
  }

 private:
  // Those that go abreast.
  std::vector<IdRange<MicroBatch>> in_rows(IdRange<MicroBatch> group) const {
    std::vector<IdRange<MicroBatch>> rows;
    for (std::size_t i = 0; i < group.size(); i += abreast_) {
      rows.emplace_back(group[i], group[std::min<std::size_t>(i + abreast_, group.size())]);
    }
    return rows;
  }

  static void pass(const Section& section, IdRange<MicroBatch> abreast, std::vector<IssueSlot>& order) {
    // Alone, a micro-batch has nobody to take turns with.
    const std::size_t first = abreast.size() > 1 ? 0 : section.ends.size() - 1;
    std::int32_t begin = section.begin;
    for (std::size_t turn = first; turn < section.ends.size(); ++turn) {
      for (const MicroBatch mb : abreast) order.push_back({section.block, mb, begin, section.ends[turn]});
      begin = section.ends[turn];
    }
  }

  std::size_t abreast_;
  std::vector<Section> forward_, backward_;
};

}  // namespace

bool allows_layer_order(const Layout& layout) {
  return layout.pp == 1 && layout.vpp == 1 && layout.micro_batches() > 1 && layout.zero < 3 &&
         layout.reduces_once_a_step();
}

void order_by_layers(Plan& plan, const LayerOrder& choice) {
  if (!allows_layer_order(plan.layout)) return;
  const OpLists writers = writers_by_value(plan.graph);
  const std::int64_t all = plan.graph.micro_batches;
  const std::int64_t size = choice.micro_batches == 0 ? all : std::min<std::int64_t>(choice.micro_batches, all);
  for (ClassPlan& c : plan.classes) {
    const LayerOrderOfClass sections(plan, c, writers, choice);
    if (!sections.is_possible()) continue;
    const IssueSlot update = c.order.back();
    c.order.clear();
    for (std::int64_t begin = 0; begin < all; begin += size) {
      sections.append({make_id<MicroBatch>(begin), make_id<MicroBatch>(std::min(begin + size, all))}, c.order);
    }
    c.order.push_back(update);
  }
}

}  // namespace weft
