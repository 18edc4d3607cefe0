// A pipeline whose order policy weft looks for, against the named schedules, each as a whole plan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

double step_of_weft(const Layout& layout, std::int64_t micro_batches) {
  const PlanRequest request =
      searching(test::request(small_gpt(8), parse_cluster("local:4,nic=1Gb/s"), layout, micro_batches));
  const WholePlan made = make_whole_plan(request, build(request), "weft");
  return request.search.step_seconds(made);
}

TEST(SearchedPipeline, IsNeverWorseThanANamedSchedule) {
  using enum PipelineSchedule;
  struct Case {
    Layout layout;
    std::vector<PipelineSchedule> named;
    std::int64_t micro_batches = 8;
  };
  const std::vector<Case> cases = {
      {{.pp = 4, .schedule = searched}, {one_f_one_b, zb_h1, zb_h2}},
      {{.pp = 2, .zero = 1, .clip_grad = 1, .schedule = searched}, {one_f_one_b, zb_h1, zb_h2}, 4},
      {{.pp = 4, .schedule = searched, .stage_layers = {1, 4, 2, 1}}, {one_f_one_b, zb_h1, zb_h2}},
      {{.tp = 2, .pp = 2, .vpp = 2, .schedule = searched_waves}, {zbv, v_half, v_min, dualpipev}, 4},
      {{.tp = 2, .pp = 2, .vpp = 2, .schedule = searched_loops}, {interleaved, breadth_first}, 4},
      {{.pp = 4, .vpp = 2, .zero = 1, .schedule = searched_loops}, {interleaved, breadth_first}},
      {{.pp = 2, .vpp = 4, .schedule = searched_loops}, {interleaved, breadth_first}},
      {{.pp = 4, .vpp = 2, .schedule = searched_loops}, {breadth_first}, 6},
  };
  for (const auto& [base, named, micro_batches] : cases) {
    Layout layout = base;
    const double found = step_of_weft(layout, micro_batches);
    for (const PipelineSchedule schedule : named) {
      layout.schedule = schedule;
      EXPECT_LE(found, step_of_weft(layout, micro_batches) * (1 + 1e-9))
          << fmt::format("pp {}, vpp {}, {}", layout.pp, layout.vpp, name_of(schedule));
    }
  }
}

}  // namespace
}  // namespace weft::test
