#include "graph/transfer_program.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

using enum Algorithm;

struct Fault {
  Communication communication;
  std::int64_t members;
  const char* words;
};

class Faults : public testing::TestWithParam<Fault> {};

TEST_P(Faults, AreFoundAndHaveNoProgram) {
  const auto& [communication, members, words] = GetParam();
  EXPECT_EQ(program_fault(communication, members), words);
  EXPECT_EQ(program_of(communication, members), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(
    All, Faults,
    testing::Values(
        Fault{{.collective = Collective::all_to_all, .algorithm = ring},
              4,
              "there is no all_to_all that is a ring; allowed are direct, bruck, pairwise, hierarchical, native"},
        Fault{{.parts = 0}, 4, "parts 0 is not in 1..32"}, Fault{{.parts = 33}, 4, "parts 33 is not in 1..32"},
        Fault{{.algorithm = native, .parts = 2}, 4, "parts 2: native is one call of the transport's library"},
        Fault{{.algorithm = ring, .inner = 2}, 4, "inner 2: a ring has no inner groups"},
        Fault{{.algorithm = hierarchical}, 4, "inner 0: hierarchical needs the size of its inner groups"},
        Fault{{.algorithm = hierarchical, .inner = 3}, 4, "inner 3 does not divide 4 members"}));

TEST(ProgramFault, DoesNotAskWhatInnerDividesWhileTheGroupIsUnknown) {
  EXPECT_EQ(program_fault({.algorithm = hierarchical, .inner = 3}), "");
  EXPECT_EQ(program_fault({.algorithm = hierarchical, .inner = 3}, 6), "");
}

TEST(ProgramOf, KeepsAllThatThePlanSays) {
  const Communication c{.collective = Collective::all_gather, .algorithm = hierarchical, .parts = 4, .inner = 2};
  EXPECT_EQ(program_of(c, 8), (ProgramRequest{.algorithm = hierarchical,
                                              .kind = Collective::all_gather,
                                              .ranks = 8,
                                              .parts = 4,
                                              .in_place = false,
                                              .inner = 2}));
  EXPECT_TRUE(program_of({.collective = Collective::all_reduce}, 8)->in_place);
}

TEST(ProgramOf, IsNothingForOneMemberAndForTheTransportsOwnCall) {
  EXPECT_EQ(program_of({}, 1), std::nullopt);
  EXPECT_EQ(program_fault({.algorithm = native}, 8), "");
  EXPECT_EQ(program_of({.algorithm = native}, 8), std::nullopt);
}

TEST(ProgramInWords, NamesPartsAndInnerGroupsWhereThereAreAny) {
  EXPECT_EQ(program_in_words({.algorithm = ring}), "ring");
  EXPECT_EQ(program_in_words({.algorithm = hierarchical, .parts = 4, .inner = 2}),
            "hierarchical with inner groups of 2 in 4 parts");
}

}  // namespace
}  // namespace weft
