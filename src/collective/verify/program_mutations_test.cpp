// Changed programs: what brute force under random timings shows to go wrong, the verifier must refuse; what provably
// gives the same result, it must accept. The rest is counted and printed (docs/program-verifier.md).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <string>
#include <tuple>

#include "base/error.hpp"
#include "base/test_effort.hpp"
#include "collective/algorithms.hpp"
#include "collective/verify/testing/brute_force.hpp"
#include "collective/verify/testing/hand_built.hpp"
#include "collective/verify/testing/mutations.hpp"
#include "collective/verify/testing/same_order.hpp"
#include "collective/verify/verify_program.hpp"

namespace weft {
namespace {

using testing::BruteForce;
using testing::kMutations;
using testing::LateStep;
using testing::Mutant;
using testing::Mutation;
using testing::Outcome;
using testing::Random;
using testing::SameOrder;
using testing::Timing;

constexpr int kTimings = 9;
constexpr std::uint64_t kSeed = 20240601;

constexpr std::int64_t kManySlots = 1 << 20;
constexpr const char* kOtherHazard = "hazard: other";

struct Tally {
  int mutants = 0;
  std::map<Outcome, int> changed;      // by brute force; all refused
  int provoked = 0;                    // of the changed: only by a timing made for the two steps that nothing orders
  int accepted = 0;                    // never seen to change
  int provably_same = 0;               // of the accepted
  std::map<std::string, int> refused;  // never seen to change, by reason
};

std::map<Mutation, Tally>& tallies() {
  static std::map<Mutation, Tally> all;
  return all;
}

// The worst that any of the timings shows.
Outcome brute_force(const Program& program, std::uint64_t seed) {
  BruteForce machine(program);
  for (int i = 0; i < kTimings; ++i) {
    const std::int64_t slots = std::array<std::int64_t, 3>{2, 3, 8}[static_cast<std::size_t>(i) % 3];
    const Outcome outcome = machine.run({testing::mixed(seed + static_cast<std::uint64_t>(i)), slots, {}, {}, {}});
    if (outcome != Outcome::right) return outcome;
  }
  return Outcome::right;
}

const Instruction& step_at(const Program& program, const RankStep& at) {
  return program.ranks[at.rank].blocks[at.step.block].steps[at.step.step];
}

// Two steps that nothing orders: each in turn comes as late as it can, or right after the other, or stops between
// reading and writing until the other is through, which loses an update.
Outcome provoke_pair(const Program& program, const std::vector<RankStep>& steps, std::uint64_t seed) {
  BruteForce machine(program);
  Random random(seed);
  for (const std::size_t which : {std::size_t{0}, std::size_t{1}}) {
    const RankStep& one = steps[which];
    const RankStep& other = steps[1 - which];
    const std::int64_t slot = random.below(step_at(program, one).count);
    const std::vector<std::vector<LateStep>> timings{
        {{one, 0}}, {{other, 0}, {one, 0, other}}, {{other, 0}, {one, 2 * slot + 1}}};
    for (const std::vector<LateStep>& late : timings) {
      for (int i = 0; i < 2; ++i) {
        const Outcome outcome = machine.run({random.next(), kManySlots, late, {}, {}});
        if (outcome != Outcome::right) return outcome;
      }
    }
  }
  return Outcome::right;
}

bool writes(const Program& program, const RankStep& at, SlotRef slot) {
  const Instruction& step = step_at(program, at);
  const SlotRef first = located(program, at.rank, step.dst);
  return writes_dst(step.kind) && first.buffer == slot.buffer && slot.slot >= first.slot &&
         slot.slot < first.slot + step.count;
}

// Whether the two steps at odds leave the contested slot as it is: both write the same, or the one that writes finds it
// there already.
bool rewrites_the_same(const Program& program, const ProgramVerdict& verdict) {
  const SlotRef contested = verdict.violation->slot.value();
  const std::vector<RankStep>& at_odds = verdict.violation->steps;
  const std::int64_t rank = at_odds[0].rank;
  Content held;
  for (std::int64_t slot = 0; slot < input_slots(program.spec, rank); ++slot) {
    if (located(program, rank, {BufferKind::input, slot}) == contested) {
      held = initial_content(program.spec, rank, slot);
    }
  }
  std::vector<Content> written;       // by the two
  std::vector<Content> found_before;  // by each of them
  for (const StepTrace& trace : verdict.run.steps) {
    const RankStep at{trace.rank, trace.step};
    if (trace.rank != rank || !writes(program, at, contested)) continue;
    const SlotRef first = located(program, trace.rank, step_at(program, at).dst);
    const Content& value = trace.moved[contested.slot - first.slot];
    if (std::find(at_odds.begin(), at_odds.end(), at) != at_odds.end()) {
      written.push_back(value);
      found_before.push_back(held);
    }
    held = value;
  }
  if (written.size() == 2) return written[0] == written[1];
  return written.size() == 1 && written[0] == found_before[0];
}

// Whether the outputs are right although the one that reads the contested slot, or where both write it each of them,
// has noise there.
bool is_never_used(const Program& program, const Finding& finding) {
  BruteForce machine(program);
  const SlotRef slot = finding.slot.value();
  const bool both_write = writes(program, finding.steps[0], slot) && writes(program, finding.steps[1], slot);
  for (const RankStep& garbled : finding.steps) {
    if (!both_write && writes(program, garbled, slot)) continue;
    const Timing timing{kSeed, kManySlots, {}, garbled, slot};
    if (machine.run(timing) != Outcome::right) return false;
  }
  return true;
}

std::string reason_of(const Program& program, const ProgramVerdict& verdict) {
  const Finding& finding = *verdict.violation;
  if (finding.rule == ProgramRule::hazard) {
    if (rewrites_the_same(program, verdict)) return "hazard: the same value";
    return is_never_used(program, finding) ? "hazard: a value that is never used" : kOtherHazard;
  }
  if (finding.rule != ProgramRule::value) return std::string(name_of(finding.rule));
  for (const char* words : {"count twice", "different pieces", "does not reduce", "before anything is there"}) {
    if (finding.words.find(words) != std::string::npos) return std::string("value: ") + words;
  }
  return "value: postcondition";
}

RankStep draw_step(const Program& program, std::int64_t rank, Random& random) {
  const std::vector<ThreadBlock>& blocks = program.ranks[rank].blocks;
  const std::int64_t block = random.below(static_cast<std::int64_t>(blocks.size()));
  const auto steps = static_cast<std::int64_t>(blocks[block].steps.size());
  // An empty block's step 0 is never reached, so nothing is late then.
  const std::int64_t step = steps == 0 ? 0 : random.below(steps);
  return {rank, {static_cast<std::int32_t>(block), static_cast<std::int32_t>(step)}};
}

// Some races show only together with another one where the message goes: a late send and any late step of its receiver.
Outcome provoke_with_receiver(const Program& program, const std::vector<RankStep>& steps, std::uint64_t seed) {
  constexpr int kTries = 100;
  BruteForce machine(program);
  Random random(seed);
  for (const RankStep& step : steps) {
    if (!sends(step_at(program, step).kind)) continue;
    const ThreadBlock& block = program.ranks[step.rank].blocks[step.step.block];
    for (int i = 0; i < kTries; ++i) {
      const RankStep other = draw_step(program, block.send_to, random);
      const Outcome outcome = machine.run({random.next(), kManySlots, {{step, 0}, {other, 0}}, {}, {}});
      if (outcome != Outcome::right) return outcome;
    }
  }
  return Outcome::right;
}

// Chance, against a program that the verifier accepts: any two steps of a rank.
Outcome provoke_anything(const Program& program, std::uint64_t seed) {
  constexpr int kTries = 4;
  Random random(seed);
  for (int i = 0; i < kTries; ++i) {
    const std::int64_t rank = random.below(static_cast<std::int64_t>(program.ranks.size()));
    if (program.ranks[rank].blocks.empty()) continue;
    const RankStep one = draw_step(program, rank, random);
    const RankStep other = draw_step(program, rank, random);
    const Outcome outcome = BruteForce(program).run({random.next(), kManySlots, {{one, 0}, {other, 1}}, {}, {}});
    if (outcome != Outcome::right) return outcome;
  }
  return Outcome::right;
}

// By timings made for what the verifier says.
Outcome provoke(const Program& program, const ProgramVerdict& verdict, std::uint64_t seed) {
  if (verdict.accepted()) return provoke_anything(program, seed);
  if (verdict.violation->rule != ProgramRule::hazard) return Outcome::right;
  const Outcome outcome = provoke_pair(program, verdict.violation->steps, seed);
  if (outcome != Outcome::right || reason_of(program, verdict) != kOtherHazard) return outcome;
  return provoke_with_receiver(program, verdict.violation->steps, seed);
}

void judge(const Mutant& mutant, const SameOrder& original, Tally& tally, std::uint64_t seed) {
  const ProgramVerdict verdict = verify_program(mutant.program);
  Outcome outcome = brute_force(mutant.program, seed);
  const bool same = original.provably_same(mutant);
  if (outcome == Outcome::right && !same) {
    outcome = provoke(mutant.program, verdict, seed);
    tally.provoked += outcome != Outcome::right;
  }
  ++tally.mutants;
  if (outcome != Outcome::right) {
    ++tally.changed[outcome];
    EXPECT_FALSE(verdict.accepted()) << "brute force shows outcome " << static_cast<int>(outcome);
    EXPECT_FALSE(same) << "brute force shows outcome " << static_cast<int>(outcome);
  } else if (verdict.accepted()) {
    ++tally.accepted;
    tally.provably_same += same;
  } else {
    ++tally.refused[reason_of(mutant.program, verdict)];
    EXPECT_FALSE(same) << verdict.words();
  }
}

void judge_mutants(const Program& program, std::uint64_t seed) {
  ASSERT_EQ(verify_program(program).words(), "");
  ASSERT_EQ(brute_force(program, seed), Outcome::right);
  const SameOrder original(program);
  ASSERT_TRUE(original.provably_same(testing::unchanged(program)));
  Random random(seed);
  for (const Mutation mutation : kMutations) {
    for (int i = 0, tries = 0; i < test::rounds(3) && tries < 20; ++tries) {
      const auto mutant = testing::mutate(program, mutation, random);
      if (!mutant) continue;
      SCOPED_TRACE(fmt::format("{}, mutant {}", name_of(mutation), i));
      judge(*mutant, original, tallies()[mutation], random.next());
      ++i;
    }
  }
}

void print_row(std::string_view name, const Tally& tally) {
  const auto changed = [&](Outcome outcome) {
    const auto found = tally.changed.find(outcome);
    return found == tally.changed.end() ? 0 : found->second;
  };
  int refused = 0;
  for (const auto& [reason, count] : tally.refused) refused += count;
  std::cout << fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name, tally.mutants,
                           changed(Outcome::wrong), changed(Outcome::stuck), changed(Outcome::left_over),
                           changed(Outcome::broken), tally.provoked, tally.accepted, tally.provably_same, refused);
}

// As docs/program-verifier.md shows it.
void print_tallies() {
  std::cout << "| mutation | mutants | wrong | stuck | left over | broken | of these by a timing made for it "
               "| unchanged, accepted | of these provably | unchanged, refused |\n"
               "|---|---|---|---|---|---|---|---|---|---|\n";
  Tally sum;
  for (const auto& [mutation, tally] : tallies()) {
    print_row(name_of(mutation), tally);
    sum.mutants += tally.mutants;
    sum.provoked += tally.provoked;
    sum.accepted += tally.accepted;
    sum.provably_same += tally.provably_same;
    for (const auto& [outcome, count] : tally.changed) sum.changed[outcome] += count;
    for (const auto& [reason, count] : tally.refused) sum.refused[reason] += count;
  }
  print_row("all", sum);
  std::cout << "\nunchanged, refused:\n";
  for (const auto& [reason, count] : sum.refused) std::cout << fmt::format("- {}: {}\n", reason, count);
}

class ProgramMutations : public ::testing::TestWithParam<Collective> {
 protected:
  static void TearDownTestSuite() { print_tallies(); }
};

// The largest inner group that is not all of them; 1 for a prime.
std::int64_t inner_group(std::int64_t ranks) {
  for (std::int64_t inner = ranks / 2; inner > 1; --inner) {
    if (ranks % inner == 0) return inner;
  }
  return 1;
}

TEST_P(ProgramMutations, OfGeneratedProgramsAreJudgedAsBruteForceShows) {
  const std::vector<Algorithm> algorithms = algorithms_for(GetParam());
  if (algorithms.empty()) GTEST_SKIP() << "no algorithm for " << name_of(GetParam());
  std::uint64_t seed = kSeed;
  for (const Algorithm algorithm : algorithms) {
    for (const std::int64_t ranks : {2, 3, 4, 5, 7, 8, 16}) {
      ProgramRequest request{.algorithm = algorithm, .kind = GetParam(), .ranks = ranks};
      request.root = ranks / 2;
      request.parts = ranks <= 5 ? 2 : 1;
      request.in_place = ranks % 2 == 0 ? ranks % 4 == 0 : ranks % 4 == 1;
      if (algorithm == Algorithm::hierarchical) request.inner = inner_group(ranks);
      if (algorithm == Algorithm::parameter_server) request.servers = ranks % 3;
      Program program;
      try {
        program = make_program(request);
      } catch (const Error&) {
        continue;  // send_recv has two ranks, hierarchical wants two groups
      }
      SCOPED_TRACE(fmt::format("{} {} of {} ranks", name_of(algorithm), name_of(GetParam()), ranks));
      judge_mutants(program, ++seed);
    }
  }
  EXPECT_GT(seed, kSeed);
}

INSTANTIATE_TEST_SUITE_P(All, ProgramMutations,
                         ::testing::Values(Collective::broadcast, Collective::reduce, Collective::gather,
                                           Collective::scatter, Collective::all_gather, Collective::reduce_scatter,
                                           Collective::all_reduce, Collective::all_to_all, Collective::send_recv,
                                           Collective::barrier),
                         [](const auto& each) { return std::string(name_of(each.param)); });

TEST(HandBuiltProgramMutations, AreJudgedAsBruteForceShows) {
  std::uint64_t seed = 2 * kSeed;
  for (const std::int64_t ranks : {2, 3, 4, 5, 7, 8, 16}) {
    std::vector<Program> programs{testing::fused_ring_all_reduce(ranks, 2), testing::direct_all_to_all(ranks),
                                  testing::all_reduce_by_helper(ranks)};
    if ((ranks & (ranks - 1)) == 0) programs.push_back(testing::recursive_doubling_all_gather(ranks));
    for (const Program& program : programs) {
      SCOPED_TRACE(fmt::format("{} of {} ranks", program.name, ranks));
      for (int round = 0; round < test::rounds(4); ++round) judge_mutants(program, ++seed);
    }
  }
}

// The executor itself: it must see a race that only some timings show.
TEST(BruteForce, SeesARaceAndADeadlock) {
  Program race = testing::all_reduce_by_helper(3);
  ASSERT_EQ(brute_force(race, 1), Outcome::right);
  race.ranks[3].blocks[1].steps[0].after.clear();
  EXPECT_EQ(brute_force(race, 1), Outcome::wrong);
  Program circle = testing::direct_all_to_all(2);
  for (RankProgram& rank : circle.ranks) std::swap(rank.blocks[1].steps[0], rank.blocks[1].steps[1]);
  EXPECT_EQ(brute_force(circle, 1), Outcome::stuck);
}

}  // namespace
}  // namespace weft
