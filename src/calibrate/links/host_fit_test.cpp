#include "calibrate/links/host_fit.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr MeasuredLink kLink{24e6, {10'000}, {62'000}};

ProgramQuestion question_of(Collective kind, std::int64_t bytes_of_rank, std::int64_t ranks) {
  return {.kind = kind,
          .elements = bytes_of_rank / 8 * ranks,
          .element_size = {8},
          .in_place = false,
          .members = members_up_to(ranks)};
}

std::vector<HostSample> samples_of(const HostWork& truth, std::int64_t ranks) {
  const Collective gather = Collective::all_gather;
  std::vector<HostSample> samples = {
      {HostPart::call, Algorithm::direct, 1, question_of(gather, 4'000, ranks), {}},
      {HostPart::latency, Algorithm::ring, 1, question_of(gather, 12'000, ranks), {}},
      {HostPart::per_message, Algorithm::bidirectional_ring, 1, question_of(gather, 12'000, ranks), {}},
      {HostPart::bytes, Algorithm::direct, 1, question_of(gather, 12'000, ranks), {}},
      {HostPart::reductions, Algorithm::direct, 1, question_of(Collective::reduce_scatter, 12'000, ranks), {}},
      {HostPart::burst, Algorithm::ring, 2, question_of(gather, 40'000, ranks), {}},
  };
  for (HostSample& sample : samples)
    sample.time = time_over_tcp(sample.algorithm, sample.parts, sample.question, kLink, truth);
  return samples;
}

// Programs that take what some hosts would take give these hosts back, and so the times of all other programs.
TEST(HostFit, FindsTheHostsThatTookTheseTimes) {
  for (const std::int64_t ranks : {3, 4, 5}) {
    const HostWork truth{.call = {60'000},
                         .latency = {20'000},
                         .per_message = {25'000},
                         .rate = {1.5e9},
                         .copies = {8e9},
                         .reductions = {3e9},
                         .burst = {60'500}};
    HostWork first;
    first.latency = kLink.latency;
    first.copies = truth.copies;
    first.burst = kLink.burst;
    const HostWork found = fit_host_work(kLink, samples_of(truth, ranks), first);
    for (const Algorithm algorithm : {Algorithm::recursive_doubling, Algorithm::pairwise, Algorithm::bruck}) {
      for (const std::int64_t bytes : {8'000, 10'000, 200'000}) {
        const ProgramQuestion question = question_of(Collective::all_gather, bytes, ranks);
        const auto expected = static_cast<double>(time_over_tcp(algorithm, 1, question, kLink, truth).value);
        EXPECT_NEAR(static_cast<double>(time_over_tcp(algorithm, 1, question, kLink, found).value), expected,
                    0.02 * expected)
            << ranks << " ranks, " << name_of(algorithm) << ", " << bytes;
      }
    }
    EXPECT_NEAR(static_cast<double>(found.burst.value), 60'500, 500) << ranks;
    EXPECT_NEAR(found.reductions.bytes_per_second, 3e9, 0.3e9) << ranks;
  }
}

// Messages do not find more saved up than the link was measured to save.
TEST(HostFit, TheBurstIsTheLinksAtMost) {
  HostWork first;
  first.latency = kLink.latency;
  first.burst = {kLink.burst.value / 2};
  const HostSample quick{HostPart::burst, Algorithm::ring, 1, question_of(Collective::all_gather, 80'000, 2), {1}};
  EXPECT_EQ(fit_host_work(kLink, {&quick, 1}, first).burst, kLink.burst);
}

// Links on which nothing waits say nothing about bursts, and hosts faster than the model's fastest are not negative.
TEST(HostFit, LeavesWhatHasNoSignAndNothingIsNegative) {
  HostWork first;
  first.latency = kLink.latency;
  first.burst = kLink.burst;
  const HostSample quick{HostPart::call, Algorithm::direct, 1, question_of(Collective::all_gather, 4'000, 2), {1}};
  const HostWork found = fit_host_work(kLink, {&quick, 1}, first);
  EXPECT_EQ(found.call, Nanos{0});
  EXPECT_EQ(found.latency, kLink.latency);
  EXPECT_EQ(found.burst, kLink.burst);
}

}  // namespace
}  // namespace weft
