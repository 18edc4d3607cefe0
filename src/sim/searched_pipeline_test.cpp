// A pipeline whose order policy weft looks for, against the named schedules, each as a whole plan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

double step_of_weft(const Layout& layout) {
  const PlanRequest request =
      searching(test::request(small_gpt(8), parse_cluster("local:4,nic=1Gb/s"), layout, layout.pp == 2 ? 4 : 8));
  const WholePlan made = make_whole_plan(request, build(request), "weft");
  return request.search.step_seconds(made);
}

TEST(SearchedPipeline, IsNeverWorseThanANamedSchedule) {
  using enum PipelineSchedule;
  const std::vector<std::pair<Layout, std::vector<PipelineSchedule>>> cases = {
      {{.pp = 4}, {one_f_one_b, zb_h1, zb_h2}},
      {{.pp = 2, .zero = 1, .clip_grad = 1}, {one_f_one_b, zb_h1, zb_h2}},
      {{.pp = 4, .stage_layers = {1, 4, 2, 1}}, {one_f_one_b, zb_h1, zb_h2}},
      {{.tp = 2, .pp = 2, .vpp = 2}, {zbv, v_half, v_min, dualpipev}},
  };
  for (const auto& [base, named] : cases) {
    Layout layout = base;
    layout.schedule = searched;
    const double found = step_of_weft(layout);
    for (const PipelineSchedule schedule : named) {
      layout.schedule = schedule;
      EXPECT_LE(found, step_of_weft(layout) * (1 + 1e-9))
          << fmt::format("pp {}, vpp {}, {}", layout.pp, layout.vpp, name_of(schedule));
    }
  }
}

}  // namespace
}  // namespace weft::test
