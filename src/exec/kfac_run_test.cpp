// K-FAC on ranks that are threads: losses are those of one rank that does everything in turn, whatever fills its
// bubbles. What one rank computes is compared with PyTorch by tests/run_kfac_test.py. Needs kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_training.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"

namespace weft {
namespace {

constexpr std::int64_t kKfacSteps = 8, kKfacSequences = 8;

struct KfacCase {
  Layout layout;
  std::int64_t ranks = 1;
  std::int64_t interval = 1;
  std::string name() const {
    return fmt::format("pp {} dp {} vpp {} zero {} {} recompute {} interval {}", layout.pp, ranks / layout.pp,
                       layout.vpp, layout.zero, name_of(layout.schedule), name_of(layout.recompute), interval);
  }
};

WholePlan kfac_plan(const KfacCase& c, bool fills) {
  Transformer model = test::tiny_gpt();
  model.layers = 4;
  Layout layout = c.layout;
  layout.kfac_interval = c.interval;
  layout.micro_batch = 1;
  const PlanRequest request =
      test::PlannedLayout::request_of(model, layout, c.ranks, kKfacSequences * layout.pp / c.ranks);
  Overlap overlap;
  overlap.order.fill_bubbles = fills;
  WholePlan made = overlapped_plan(request, test::build(request), "test", overlap);
  const std::optional<Violation> violation = verify_plan(made);
  EXPECT_FALSE(violation.has_value()) << c.name() << ": " << violation->message;
  return made;
}

std::vector<double> train_with_kfac(const WholePlan& plan) {
  TrainSettings settings;
  settings.steps = kKfacSteps;
  settings.optimizer = Optimizer::kfac;
  settings.kfac.learning_rate = 0.001;
  settings.kfac.damping = 0.1;  // with less, and longer steps, sums in another order show in the fourth digit
  settings.schedule.warmup = 3;
  TrainJob job{plan, settings, Corpus::generate(3, 4096), 1, true};
  std::vector<double> losses;
  const std::int64_t ranks = Cluster(plan.plan().cluster).device_count();
  local_ranks::on_ranks({.ranks = ranks}, {.check = true}, [&](Communicator& communicator) {
    TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) losses = std::move(own.losses);
  });
  return losses;
}

TEST(KfacRun, TrainsWhatOneRankTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  using enum PipelineSchedule;
  for (const std::int64_t interval : {1, 3}) {
    const std::vector<double> expected = train_with_kfac(kfac_plan({{}, 1, interval}, false));
    std::vector<KfacCase> cases{{{.pp = 2}, 4, interval}, {{.zero = 1}, 2, interval}};
    if (interval == 1) {
      cases = {{{}, 2},
               {{.pp = 2}, 4},
               {{.pp = 4, .schedule = gpipe}, 4},
               {{.pp = 2, .recompute = Recompute::full}, 2},
               {{.pp = 2, .vpp = 2, .schedule = interleaved}, 2},
               {{.pp = 2, .schedule = zb_h1}, 2},
               {{.zero = 1}, 4},
               {{.pp = 2, .zero = 1}, 4},
               {{.zero = 2}, 2},
               {{.pp = 2, .zero = 2}, 4}};
    }
    for (const KfacCase& c : cases) {
      for (const bool fills : {false, true}) {
        const std::vector<double> found = train_with_kfac(kfac_plan(c, fills));
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t step = 0; step < found.size(); ++step) {
          EXPECT_NEAR(found[step] / expected[step], 1, 1e-4)
              << c.name() << (fills ? ", in bubbles" : "") << ", step " << step;
        }
      }
    }
  }
}

// Or the losses above would say nothing of the inverses.
TEST(KfacRun, LearnsOtherwiseThanWithoutInverses) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const std::vector<double> often = train_with_kfac(kfac_plan({{}, 1, 1}, false));
  const std::vector<double> never = train_with_kfac(kfac_plan({{}, 1, 100}, false));
  EXPECT_GT(std::abs(often.back() / never.back() - 1), 10 * 1e-4);  // ten times the tolerance above
}

}  // namespace
}  // namespace weft
