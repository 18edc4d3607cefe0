#include "cost/made_program.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "cluster/presets.hpp"
#include "cluster/topology_presets.hpp"
#include "collective/verify/symbolic_run.hpp"
#include "cost/cost_model.hpp"
#include "cost/switch_time.hpp"

namespace weft {
namespace {

Cluster on(const std::string& topology, const std::string& cluster) {
  ClusterSpec spec = parse_cluster(cluster);
  spec.topology = SharedTopology(parse_topology(topology));
  return Cluster(spec);
}

ProgramQuestion question(Collective kind, std::int64_t bytes, const Cluster& cluster) {
  ProgramQuestion q{.kind = kind,
                    .elements = bytes,
                    .element_size = Bytes{1},
                    .in_place = kind == Collective::all_reduce,
                    .members = {}};
  for (std::int32_t r = 0; r < cluster.device_count(); ++r) q.members.push_back(Rank{r});
  return q;
}

struct Wiring {
  const char *topology, *cluster;
};
class SmallSizes : public ::testing::TestWithParam<Wiring> {};

// From 1 KB to 1 MB, in the same simulation, what is made for a wiring is never slower than ring or tree in their best
// parts.
TEST_P(SmallSizes, MadeProgramsAreNeverSlowerThanRingOrTree) {
  const Cluster cluster = on(GetParam().topology, GetParam().cluster);
  for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
    for (const std::int64_t bytes : {1 << 10, 16 << 10, 256 << 10, 1 << 20}) {
      const ProgramQuestion q = question(kind, bytes, cluster);
      const std::vector<MadeProgram> made = rank_made(q, cluster);
      ASSERT_FALSE(made.empty());
      for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree}) {
        const auto classic = best_parts(algorithm, q, cluster);
        if (!classic) continue;
        EXPECT_LE(made.front().time.value, classic->time.value)
            << name_of(kind) << " of " << bytes << ": " << made.front().program->origin << " against "
            << name_of(algorithm);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Wirings, SmallSizes,
                         ::testing::Values(Wiring{"dgx1-v100", "local:8"}, Wiring{"dgx-a100:1", "local:8"},
                                           Wiring{"mi250", "local:16"}));

// Where one message to everybody is enough, nothing that is made for the wiring beats it.
TEST(MadeProgram, AGeneratorsProgramIsTakenWhereItIsFaster) {
  const Cluster cluster = on("dgx1-v100", "local:8");
  const ProgramQuestion q = question(Collective::all_reduce, 1 << 10, cluster);
  const auto best = fastest_made(q, cluster, {}, nullptr);
  ASSERT_TRUE(best.has_value());
  EXPECT_LE(best->time, rank_made(q, cluster).front().time);
  EXPECT_LE(best->time, rank_programs(q, cluster).front().time);
}

// 64 MiB at 450 GB/s take 149.13 us whatever the program; without switches that take part 1.75 times that.
TEST(MadeProgram, SwitchesTakePartWhereThatIsFaster) {
  const Cluster cluster = on("dgx-h100", "local:8");
  const ProgramQuestion q = question(Collective::all_reduce, 64 << 20, cluster);
  const double least = (64 << 20) / 450e9;
  const auto best = fastest_made(q, cluster, {}, nullptr);
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(switches_of(best->program->program), 1) << best->program->origin;
  EXPECT_GE(seconds(best->time), least);
  EXPECT_LE(seconds(best->time), 1.2 * least);
  ClusterSpec passive = cluster.spec();
  passive.topology = SharedTopology(without_switch_abilities(*passive.topology));
  const auto without = fastest_made(q, Cluster(passive), {}, nullptr);
  ASSERT_TRUE(without.has_value());
  EXPECT_EQ(switches_of(without->program->program), 0);
  EXPECT_GE(seconds(without->time), 1.75 * least);
}

// Two groups of four at the same switches have 450 GB/s each into them, and do not delay each other.
TEST(SwitchTime, GroupsAtOneSwitchWorkSideBySide) {
  const Cluster cluster = on("dgx-h100", "local:8");
  std::vector<std::vector<Rank>> halves(2);
  for (std::int32_t r = 0; r < 8; ++r) halves[r / 4].push_back(Rank{r});
  ProgramQuestion q = question(Collective::all_reduce, 16 << 20, cluster);
  q.members = halves[0];
  const auto best = fastest_made(q, cluster, {}, nullptr);
  ASSERT_TRUE(best && switches_of(best->program->program) == 1);
  const Program& program = best->program->program;
  EXPECT_EQ(switch_fault(program, cluster, halves[1]), "");
  const auto lowered = lower(program, run_symbolically(program), even_sizes(program.spec, q.elements), q.element_size);
  const Nanos alone = switch_program_time(program, lowered, cluster, halves[0], {});
  EXPECT_EQ(alone, best->time);
  EXPECT_EQ(switch_program_time_beside(program, lowered, cluster, halves, {}), alone);
  EXPECT_NE(switch_fault(program, on("dgx-a100:1", "local:8"), halves[0]), "");
  EXPECT_NE(switch_fault(program, Cluster(parse_cluster("local:8")), halves[0]), "");
}

// The store is asked first, what it returns is proven before it is taken, and what was made is kept.
class MapStore : public ProgramStore {
 public:
  std::optional<CarriedProgram> find(const std::string& key) override {
    const auto found = kept.find(key);
    return found == kept.end() ? std::nullopt : std::optional(found->second);
  }
  void keep(const std::string& key, const CarriedProgram& program) override { kept.insert_or_assign(key, program); }
  std::map<std::string, CarriedProgram> kept;
};

TEST(MadeProgram, ComesFromTheStoreWhereThatIsRight) {
  const Cluster cluster = on("dgx1-v100", "local:8");
  const ProgramQuestion q = question(Collective::all_gather, 64 << 10, cluster);
  MapStore store;
  const auto first = fastest_made(q, cluster, {}, &store);
  ASSERT_TRUE(first && store.kept.size() == 1);
  CarriedProgram& kept = store.kept.begin()->second;
  kept.origin = "from the store";
  EXPECT_EQ(fastest_made(q, cluster, {}, &store)->program->origin, "from the store");
  kept.program.ranks[0].blocks[0].steps.pop_back();  // a message is lost
  EXPECT_EQ(fastest_made(q, cluster, {}, &store)->program, first->program);
  EXPECT_EQ(store.kept.begin()->second.program, first->program->program) << "what is broken is replaced";
  fastest_made(question(Collective::all_gather, 32 << 10, cluster), cluster, {}, &store);
  EXPECT_EQ(store.kept.size(), 2U) << "another size is another question";
}

}  // namespace
}  // namespace weft
