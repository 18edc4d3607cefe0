#include "plan/memory/place.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "model/test_memory_counts.hpp"
#include "plan/memory/lifetimes.hpp"
#include "plan/memory/use.hpp"
#include "plan/unfold.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

// One copy of a value, from the operation that writes it to the last that reads it, in positions of the chain.
struct Live {
  std::string name;
  ValueId storage;
  std::int64_t begin = 0, end = 0;  // bytes
  std::int32_t first = 0, last = 0;
};

// All values of a plan with one class in which everything is in the chain; what persists lives from end to end.
std::vector<Live> live_values(const Plan& plan) {
  const Unfolded u(plan);
  const std::vector<ValueId> storage = find_storage(plan);
  std::map<std::pair<std::int32_t, std::int32_t>, Live> live;
  const auto touch = [&](ValueId id, const Instance& who) {
    const Value& value = plan.graph.value(id);
    const std::int32_t mb = value.per_micro_batch ? who.micro_batch.value : -1;
    const Placement& place = plan.placements[id.index()];
    const std::int64_t begin = place.offset.value + std::max(0, mb) % place.copies * aligned(value.bytes()).value;
    const std::int32_t at = who.chain_position;
    Live& l = live.try_emplace({id.value, mb}, Live{fmt::format("{} of {}", value.name, mb), storage[id.index()], begin,
                                                    begin + value.bytes().value, at, at})
                  .first->second;
    l.last = at;
    if (!value.per_micro_batch) l.first = 0, l.last = u.chain_length({0});
  };
  for (const Instance& i : u.instances()) {
    EXPECT_GE(i.chain_position, 0);
    for (const Write& write : plan.graph.op(i.operation).writes) touch(write.value, i);
    for (const Read& read : plan.graph.op(i.operation).reads) touch(read.value, i);
  }
  std::vector<Live> result;
  for (auto& [key, l] : live) result.push_back(std::move(l));
  return result;
}

// Returns how many pairs use the same bytes at different times.
int expect_no_conflict(const Plan& plan) {
  const std::vector<Live> values = live_values(plan);
  int reused = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Live& a = values[i];
    EXPECT_EQ(a.begin % kAlignment, 0);
    EXPECT_LE(a.end, plan.classes[0].memory.value);
    for (std::size_t j = 0; j < i; ++j) {
      const Live& b = values[j];
      if (a.begin >= b.end || b.begin >= a.end || a.storage == b.storage) continue;
      ++reused;
      EXPECT_TRUE(a.last < b.first || b.last < a.first) << a.name << " and " << b.name;
    }
  }
  return reused;
}

TEST(Placement, NeverOverlapsValuesThatAreAliveTogether) {
  const std::vector<std::pair<Transformer, Layout>> cases{
      {test::small_gpt(2), {}},
      {test::small_gpt(2), {.tp = 2, .zero = 1, .sequence_parallel = true, .attention = AttentionKernel::unfused}},
      {test::small_llama(2), {.zero = 3, .recompute = Recompute::selective, .clip_grad = 1}},
      {test::small_moe(2), {.ep = 4, .zero = 2, .recompute = Recompute::full}},
      {test::small_mla(2), {.cp = 2, .ep = 2, .zero = 1, .schedule = PipelineSchedule::gpipe}},
  };
  for (const auto& [model, layout] : cases) {
    SCOPED_TRACE(model.name);
    const Plan plan = test::serial(model, "local:4", layout, 3);
    ASSERT_EQ(plan.classes.size(), 1u);
    EXPECT_GT(expect_no_conflict(plan), 0);
  }
}

// F1 F3 F0 B1 B3 B0 F2 B2: with two copies 1 and 3 would meet, with three 0 and 3, although 0 and 2 need only two.
TEST(Placement, DoesNotDependOnMicroBatchesAscending) {
  Plan plan = test::serial(test::small_gpt(2), "local:1", {.schedule = PipelineSchedule::gpipe}, 4);
  plan.classes[0].order = {{0, 1}, {0, 3}, {0, 0}, {1, 1}, {1, 3}, {1, 0}, {0, 2}, {1, 2}, {2, -1}};
  place_values(plan);
  expect_no_conflict(plan);
}

// Values that a stage's forward leaves for its backward; not what it sends.
std::vector<ValueId> kept_activations(const Plan& plan, std::size_t rank_class) {
  const std::vector<Lifetime> lifetimes = find_lifetimes(plan);
  std::vector<ValueId> kept;
  for (std::size_t v = 0; v < plan.graph.values.size(); ++v) {
    if (plan.graph.values[v].rank_class.index() != rank_class || !plan.graph.values[v].per_micro_batch) continue;
    const bool forward = plan.graph.op(lifetimes[v].writers.front()).phase == Phase::forward;
    const bool backward = std::any_of(lifetimes[v].readers.begin(), lifetimes[v].readers.end(),
                                      [&](OpId id) { return plan.graph.op(id).phase != Phase::forward; });
    if (forward && backward) kept.push_back(make_id<ValueId>(v));
  }
  return kept;
}

TEST(Placement, KeepsOneCopyPerMicroBatchInFlight) {
  for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe}) {
    for (const std::int64_t m : {1, 2, 3, 4, 6}) {
      const Plan plan = test::serial(test::small_gpt(4), "local:4", {.pp = 4, .schedule = schedule}, m);
      for (std::size_t stage = 0; stage < 4; ++stage) {
        const std::int64_t in_flight =
            schedule == PipelineSchedule::gpipe ? m : in_flight_micro_batches(4, static_cast<std::int64_t>(stage), m);
        const std::vector<ValueId> kept = kept_activations(plan, stage);
        EXPECT_GE(kept.size(), 10u);
        for (const ValueId id : kept) {
          EXPECT_EQ(plan.placements[id.index()].copies, in_flight)
              << name_of(schedule) << ", stage " << stage << ", m " << m << ": " << plan.graph.value(id).name;
        }
      }
    }
  }
}

// Two copies of what is sent, so that a send and the next write overlap; the write after that waits. Only where the
// order alone frees a copy in time is there no wait: 1F1B, stage i of p, w = p - 1 - i forwards of warm-up. What is
// sent forward: nothing comes back before the warm-up and one more forward are written, so w + 1 copies would do
// without waiting. What is sent backward: stage i learns with its forward j that stage i - 1 has run its backward j - w
// - 2, and after its last forward nothing more: w + 2. Never more than m.
TEST(Placement, KeepsTwoCopiesOfWhatIsSentAndWaitsForThem) {
  for (const std::int64_t m : {2, 3, 8}) {
    const Plan plan = test::serial(test::small_gpt(4), "local:4", {.pp = 4}, m);
    for (const Operation& op : plan.graph.operations) {
      if (!op.communication || op.communication->collective != Collective::send_recv || !op.communication->sends)
        continue;
      const std::int64_t warm_up = 3 - plan.graph.classes[op.rank_class.index()].stage;
      const std::int64_t expected = warm_up + (op.phase == Phase::forward ? 1 : 2);
      const Placement& place = plan.placements[op.reads[0].value.index()];
      const std::string where = fmt::format("{} of stage {}, m {}", describe(op), 3 - warm_up, m);
      EXPECT_EQ(place.copies, std::min<std::int64_t>({m, expected, 2})) << where;
      EXPECT_EQ(place.waits, std::min(m, expected) > 2) << where;
    }
  }
}

// GPT with h 256: every tensor is a multiple of 256 bytes, so alignment adds nothing.
Transformer aligned_gpt(std::int64_t layers) {
  Transformer m = test::small_gpt(layers);
  m.hidden = 256;
  m.head_dim = 64;
  m.ffn = 1024;
  m.vocab = 512;
  m.max_seq = 128;
  return m;
}

std::map<std::string, std::int64_t> terms_of(const Plan& plan, std::size_t rank_class) {
  std::map<std::string, std::int64_t> terms;
  const std::vector<MemoryUse> use = memory_use(plan);
  for (const MemoryTerm& term : use[rank_class].terms) terms[term.name] = term.bytes.value;
  return terms;
}

// The middle one of three stages holds two layers and nothing else: 12 h^2 + 13 h parameters each, as bf16 weights,
// fp32 gradients and 12 bytes of Adam's state. Two micro-batches are in flight. A layer keeps what Korthikanti et al.
// count and, as a flash kernel does, 4 bytes per head and token. What it sends takes 2 s b h a copy: two copies of the
// output, two of the gradient (see above).
TEST(Placement, OfAMiddleStageIsWhatTheFormulasSay) {
  const Transformer model = aligned_gpt(6);
  const std::int64_t s = 128, h = model.hidden, parameters = 2 * (12 * h * h + 13 * h);
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    const Plan plan = test::serial(model, "local:3", {.pp = 3, .seq = s, .recompute = recompute}, 8);
    auto terms = terms_of(plan, 1);
    const StateBytes state = megatron_state_bytes(parameters, false, 1);
    EXPECT_EQ(terms["weights"], state.weights.value);
    EXPECT_EQ(terms["gradients"], state.gradients.value);
    EXPECT_EQ(terms["optimizer state"], state.optimizer.value);
    const std::int64_t layer =
        gpt_layer_activation_bytes(model, {.seq = s, .recompute = recompute, .attention = AttentionKernel::flash})
            .value +
        (recompute == Recompute::none ? 4 * model.heads * s : 0);
    EXPECT_EQ(terms["activations"], 2 * 2 * layer + (2 + 2) * 2 * s * h);
    // Scratch of one layer's backward: below the activations of one layer and its gradients.
    EXPECT_GT(terms["scratch"], 0);
    EXPECT_LT(terms["scratch"], 2 * 34 * s * h);
  }
}

TEST(Placement, TensorParallelismSharesWhatIsInsideItsRegions) {
  const Transformer model = aligned_gpt(6);
  const std::int64_t s = 128, h = model.hidden;
  for (const bool sequence_parallel : {false, true}) {
    const Plan plan = test::serial(model, "dgx-a100:1,gpus=6",
                                   {.tp = 2, .pp = 3, .seq = s, .sequence_parallel = sequence_parallel}, 8);
    const std::int64_t layer =
        gpt_layer_activation_bytes(
            model, {.seq = s, .tp = 2, .sequence_parallel = sequence_parallel, .attention = AttentionKernel::flash})
            .value +
        4 * model.heads / 2 * s;
    EXPECT_EQ(terms_of(plan, 1)["activations"], 2 * 2 * layer + (2 + 2) * 2 * s * h / (sequence_parallel ? 2 : 1));
  }
}

// ZeRO-1 shards the optimizer's state, 2 also the gradients, 3 also the weights, here over 4 ranks. Each of the 15
// tensors' shards begins at an aligned offset.
TEST(Placement, ZeroShardsTheRightTerms) {
  const Transformer model = aligned_gpt(2);
  const std::int64_t parameters = total_parameters(model);
  for (int zero = 0; zero <= 3; ++zero) {
    const Plan plan = test::serial(model, "local:4", {.seq = 64, .zero = zero}, 2);
    auto terms = terms_of(plan, 0);
    for (const auto& [name, width, sharded_from] :
         {std::tuple{"optimizer state", 12, 1}, {"gradients", 4, 2}, {"weights", 2, 3}}) {
      const std::int64_t exact = width * parameters / (zero >= sharded_from ? 4 : 1);
      EXPECT_GE(terms[name], exact) << name << ", zero " << zero;
      EXPECT_LT(terms[name], exact + 15 * kAlignment) << name << ", zero " << zero;
    }
  }
}

TEST(MemoryTerms, SumToTheMemoryOfTheirClassLargestFirst) {
  for (const auto& [name, layout] : test::layouts()) {
    Layout l = layout;
    l.zero = static_cast<int>(name.size() % 4);
    l.clip_grad = 1;
    const Plan plan = test::serial(test::request(test::small_mla(), parse_cluster("dgx-a100:2"), l));
    for (std::size_t c = 0; c < plan.classes.size(); ++c) {
      const std::vector<MemoryTerm> terms = memory_use(plan)[c].terms;
      Bytes sum;
      for (std::size_t i = 0; i < terms.size(); ++i) {
        sum += terms[i].bytes;
        EXPECT_TRUE(i == 0 || terms[i - 1].bytes >= terms[i].bytes);
      }
      EXPECT_EQ(sum, plan.classes[c].memory) << name;
    }
  }
}

}  // namespace
}  // namespace weft
