// Policy `weft` against every combination of rule, parts and order, on steps so small that all can be tried.
//
// A step has one to three layers of one product each. For every rule and number of parts of every transfer the shortest
// period over all orders is found by branch and bound (planner/schedule/cyclic/exact_order.hpp). These orders need no
// memory and know no queues of a plan, so no plan of such a combination is faster.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/parallel.hpp"
#include "base/test_effort.hpp"
#include "graph/op_lists.hpp"
#include "graph/operation_part.hpp"
#include "graph/substitute.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/partition/partition_graph.hpp"
#include "planner/passes.hpp"
#include "planner/schedule/cyclic/exact_order.hpp"
#include "planner/schedule/cyclic/period.hpp"
#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

constexpr double kNear = 1.01;

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_()) % n; }
  // As likely in every octave between the two.
  double between(double low, double high) {
    return low * std::pow(high / low, static_cast<double>(below(1001)) / 1000);
  }

 private:
  std::mt19937 random_;
};

// A step of `layers` layers, each one product: forward, the gradients of its input and its weight, the reduction, the
// update and, at ZeRO 1, the gather.
class LayersOfOneProduct {
 public:
  LayersOfOneProduct(const PlanRequest& request, Draw& draw) : zero_(request.layout.zero), graph_(build(request)) {
    graph_.operations.clear();
    graph_.values.clear();
    ranks_ = graph_.classes[ClassId{0}].group(GroupKind::dp).view.size;
    draw_ = &draw;
  }

  StepGraph with(std::int32_t layers) {
    ValueId passed;  // the first layer has no input but the batch
    for (layer_ = 0; layer_ < layers; ++layer_) {
      const std::int64_t elements = ranks_ * std::llround(draw_->between(1 << 17, 1 << 22));
      // Between a tenth and thrice the time that a link of 25 GB/s takes for the gradient.
      rows_.push_back(std::llround(draw_->between(700, 20000)));
      weights_.push_back(value("weight", ValueKind::parameter, elements, false));
      inputs_.push_back(passed);
      passed = value("output", ValueKind::activation, 1, true);
      add(Phase::forward, product(), with_input({weight()}), {{Operand::output, passed}});
    }
    for (layer_ = layers - 1; layer_ >= 0; --layer_) {
      gradients_.insert(gradients_.begin(), value("grad", ValueKind::gradient, elements(), false));
      const Read output{Operand::output_grad, passed};
      add(Phase::weight_grad, product(), with_input({output}), {{Operand::weight_grad, gradients_.front()}});
      if (layer_ == 0) break;
      passed = value("input grad", ValueKind::activation_grad, 1, true);
      add(Phase::input_grad, product(), {weight(), output}, {{Operand::input_grad, passed}});
    }
    for (layer_ = layers - 1; layer_ >= 0; --layer_) reduced_.insert(reduced_.begin(), reduce(gradients_[at()]));
    for (layer_ = 0; layer_ < layers; ++layer_) update(reduced_[at()]);
    return std::move(graph_);
  }

 private:
  std::size_t at() const { return static_cast<std::size_t>(layer_); }
  std::vector<Read> with_input(std::vector<Read> reads) const {
    if (inputs_[at()].valid()) reads.push_back({Operand::input, inputs_[at()]});
    return reads;
  }
  Read weight() const { return {Operand::weight, weights_[at()], 1}; }
  std::int64_t elements() const { return graph_.value(weights_[at()]).elements(); }

  ValueId value(std::string name, ValueKind kind, std::int64_t elements, bool per_micro_batch) {
    Value made{
        .name = fmt::format("layer {} {}", layer_, name), .rank_class = ClassId{0}, .kind = kind, .shape = {elements}};
    made.per_micro_batch = per_micro_batch;
    made.accumulated = kind == ValueKind::gradient;
    graph_.values.push_back(std::move(made));
    return graph_.values.last_id();
  }
  OpKey product() const { return {.kind = OpKind::gemm, .dims = {rows_[at()], elements() / 1024, 1024, 1, 0, 0}}; }
  Operation& add(Phase phase, OpKey key, std::vector<Read> reads, std::vector<Write> writes, Role role = Role::ffn_in) {
    Operation op;
    op.rank_class = ClassId{0};
    op.layer = layer_;
    op.phase = key.phase = phase;
    op.role = role;
    op.subject = Role::ffn_in;
    op.key = key;
    op.per_micro_batch = phase != Phase::optimizer;
    op.reads = std::move(reads);
    op.writes = std::move(writes);
    graph_.operations.push_back(std::move(op));
    return graph_.operations.back();
  }
  void transfer(Role role, Collective collective, ValueId from, ValueId to) {
    const Bytes bytes{2 * elements()};
    Operation& op = add(Phase::optimizer, {.kind = OpKind::transfer, .dims = {bytes.value, 0, 0, 0, 0, 0}},
                        {{Operand::payload, from}}, {{Operand::payload, to}}, role);
    op.communication = Communication{.collective = collective, .group = GroupKind::dp, .bytes = bytes};
  }
  ValueId reduce(ValueId gradient) {
    const std::int64_t left = zero_ == 0 ? elements() : elements() / ranks_;
    const ValueId reduced = value("grad.reduced", ValueKind::gradient, left, false);
    graph_.values[reduced].accumulated = false;
    transfer(Role::grad_reduce, zero_ == 0 ? Collective::all_reduce : Collective::reduce_scatter, gradient, reduced);
    return reduced;
  }
  void update(ValueId gradient) {
    const std::int64_t own = graph_.value(gradient).elements();
    const ValueId state = value("state", ValueKind::optimizer_state, own, false);
    const ValueId updated = zero_ == 0 ? weights_[at()] : value("weight.shard", ValueKind::parameter, own, false);
    add(Phase::optimizer, {.kind = OpKind::adam, .dims = {own, 28, 0, 0, 0, 0}},
        {{Operand::gradient, gradient}, {Operand::optimizer_state, state, 1}},
        {{Operand::weight, updated}, {Operand::optimizer_state, state}}, Role::update);
    if (zero_ > 0) transfer(Role::param_gather, Collective::all_gather, updated, weights_[at()]);
  }

  int zero_;
  StepGraph graph_;
  std::int64_t ranks_ = 1;
  Draw* draw_ = nullptr;
  std::int32_t layer_ = -1;
  std::vector<std::int64_t> rows_;
  std::vector<ValueId> weights_, inputs_, gradients_, reduced_;
};

// The step as branch and bound takes it: transfers of one collective and scope share a queue, and all of a link take
// turns on it.
CyclicProblem cyclic_problem(const StepGraph& graph, const CostModel& cost) {
  CyclicProblem problem{.queues = 1, .links = static_cast<std::int32_t>(cost.link_resources())};
  std::map<std::tuple<Collective, Scope, bool>, std::int32_t> queues;
  const OpLists writers = writers_by_value(graph), readers = readers_by_value(graph);
  const auto wait = [&](OpId from, OpId to, std::int32_t distance) {
    problem.edges.push_back({from.value, to.value, distance});
  };
  for (const OpId id : graph.operations.ids()) {
    const Operation& op = graph.op(id);
    CyclicOperation made{.ns = static_cast<double>(cost.alone(op).value)};
    if (op.communication) {
      const bool in_legs = op.rule != Substitution::none;
      const std::tuple kind(in_legs ? op.communication->collective : Collective::all_reduce, op.communication->scope,
                            in_legs);
      made.queue = queues.try_emplace(kind, problem.queues).first->second;
      problem.queues = std::max(problem.queues, made.queue + 1);
      const TransferCost transfer = cost.transfer(op);
      made.link =
          std::max_element(transfer.work.begin(), transfer.work.end(), [](const LinkWork& a, const LinkWork& b) {
            return a.seconds < b.seconds;
          })->resource.value;
    }
    problem.operations.push_back(made);
    for (const Read& read : op.reads) {
      for (const OpId writer : writers[read.value.index()]) {
        const bool meet = overlap(read_slice_of(graph, op, read.value), slice_of(graph, graph.op(writer), read.value));
        if (meet) wait(writer, id, read.distance);
      }
    }
    // Weights are written in place, after all that read the old ones.
    for (const Write& write : op.writes) {
      if (graph.value(write.value).kind != ValueKind::parameter) continue;
      for (const OpId reader : readers[write.value.index()]) {
        if (graph.op(reader).per_micro_batch) wait(reader, id, 0);
      }
    }
    // Parts are alike: of two, the first goes first.
    if (op.part > 0) wait({id.value - 1}, id, 0);
  }
  return problem;
}

struct Combinations {
  double best_ns = std::numeric_limits<double>::infinity();
  int tried = 0, solved = 0;
};

class Exhaustive {
 public:
  Exhaustive(const PlanRequest& request, const StepGraph& graph, std::vector<std::int32_t> parts)
      : request_(request), cluster_(request.cluster), graph_(graph), part_counts_(std::move(parts)) {
    choice_.parts.assign(graph.operations.size(), 1);
    choice_.substitutions.assign(graph.operations.size(), Substitution::none);
  }
  // Returns the shortest period below `limit`, or `limit`. Combinations whose bound is not below it are not solved.
  Combinations find(double limit) {
    found_.best_ns = limit;
    choose(OpId{0});
    return found_;
  }

 private:
  void choose(OpId id) {
    while (graph_.operations.contains(id) && !graph_.op(id).communication) ++id.value;
    if (!graph_.operations.contains(id)) return solve();
    for (const Substitution rule :
         {Substitution::none, Substitution::all_reduce_in_halves, Substitution::all_reduce_in_levels,
          Substitution::reduce_scatter_in_levels, Substitution::all_gather_in_levels}) {
      if (rule != Substitution::none && !may_be_substituted(graph_, graph_.op(id), rule)) continue;
      for (const std::int32_t parts : part_counts_) {
        choice_.substitutions[id.index()] = rule;
        choice_.parts[id.index()] = parts;
        choose({id.value + 1});
      }
    }
  }
  void solve() {
    StepGraph graph = partition_graph(graph_, choice_, false);
    const CostModel cost(graph, cluster_, request_.profile);
    choose_algorithms(graph, cost);
    const CyclicProblem problem = cyclic_problem(graph, cost);
    ++found_.tried;
    if (period_bound(problem) >= found_.best_ns) return;
    ++found_.solved;
    found_.best_ns = std::min(found_.best_ns, exact_order(problem).period_ns);
  }

  const PlanRequest& request_;
  const Cluster cluster_;
  const StepGraph& graph_;
  const std::vector<std::int32_t> part_counts_;
  PartitionChoice choice_ = {};
  Combinations found_;
};

// Levels of links, ZeRO and layers such that all combinations of a step can be solved.
struct Kind {
  std::string cluster;
  int zero;
  std::int32_t layers;
  std::vector<std::int32_t> parts;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"dgx-a100:2,gpus=2", 0, 1, {1, 2, 3, 4}},
      {"dgx-a100:2,gpus=2", 0, 2, {1, 2}},
      {"dgx-a100:1,gpus=4", 0, 3, {1, 2}},
      {"dgx-a100:2,gpus=2", 1, 2, {1, 2}},
  };
  return all;
}

PlanRequest request_of(const Kind& kind, Draw& draw) {
  PlanRequest request = test::request(small_gpt(1), parse_cluster(kind.cluster), {.zero = kind.zero}, 1);
  remove_overheads(request.profile);
  request.cluster.device.compute_slowdown = request.cluster.device.transfer_slowdown = 0;
  for (LevelSpec& level : request.cluster.levels) level.latency = Nanos{draw.below(3) * 2500};
  request = searching(request);
  request.search.budget_s = 1;
  return request;
}

struct Compared {
  std::string violation = {};
  bool near = false;
  Combinations combinations = {};
};

Compared compare(int seed) {
  const Kind& kind = kinds()[static_cast<std::size_t>(seed) % kinds().size()];
  Draw draw(static_cast<std::uint32_t>(seed) + 1);
  const PlanRequest request = request_of(kind, draw);
  const SharedGraph graph = LayersOfOneProduct(request, draw).with(kind.layers);
  const WholePlan made = make_whole_plan(request, graph, "weft");
  if (const auto violation = verify_plan(made, {.check_memory = false})) return {.violation = violation->message};
  const double limit = request.search.step_seconds(made) * 1e9 / kNear;
  const Combinations found = Exhaustive(request, *graph, kind.parts).find(limit);
  return {.near = found.best_ns >= limit, .combinations = found};
}

TEST(ExhaustivePlans, NoCombinationIsMuchFasterThanWeft) {
  std::vector<Compared> steps(rounds(200));
  parallel_for(steps.size(), 2, [&](std::size_t i) { steps[i] = compare(static_cast<int>(i)); });
  std::size_t near = 0;
  int tried = 0, solved = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    ASSERT_EQ(steps[i].violation, "") << "step " << i;
    near += steps[i].near ? 1 : 0;
    tried += steps[i].combinations.tried;
    solved += steps[i].combinations.solved;
  }
  fmt::print("{} of {} steps within 1 % of the best of {} combinations ({} solved)\n", near, steps.size(), tried,
             solved);
  EXPECT_GE(near, steps.size() * 95 / 100);
}

}  // namespace
}  // namespace weft::test
