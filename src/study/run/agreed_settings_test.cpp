#include "study/run/agreed_settings.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace weft {
namespace {

TEST(AgreedSettings, NothingIsSaidWhereAllAgree) {
  const AgreedSettings one = {{"--lr", "0.01", ""}, {"--data", "5 bytes", "a.txt"}};
  const AgreedSettings other = {{"--lr", "0.01", ""}, {"--data", "5 bytes", "b.txt"}};  // the same under another name
  EXPECT_EQ(disagreement({one, other, one}), "");
}

TEST(AgreedSettings, TheFewestAreNamedFirst) {
  const auto with = [](const std::string& rate) { return AgreedSettings{{"--lr", rate, ""}, {"--seed", "1", ""}}; };
  EXPECT_EQ(disagreement({with("0.01"), with("0.02")}), "rank 1 has --lr 0.02, rank 0 has --lr 0.01");
  EXPECT_EQ(disagreement({with("0.01"), with("0.02"), with("0.02")}),
            "rank 0 has --lr 0.01, ranks 1, 2 have --lr 0.02");
  EXPECT_EQ(disagreement({with("1"), with("2"), with("3"), with("1")}),
            "rank 2 has --lr 3, rank 1 has --lr 2, ranks 0, 3 have --lr 1");
}

TEST(AgreedSettings, WhatOnlySomeHaveIsNamedAndWordsStandForValues) {
  const AgreedSettings none, some = {{"--data", "5 bytes, checksum 1", "a.txt (5 bytes)"}};
  EXPECT_EQ(disagreement({none, some}), "rank 1 has --data a.txt (5 bytes), rank 0 has no --data");
}

TEST(AgreedSettings, ManyDifferencesAreCounted) {
  AgreedSettings one, other;
  for (int i = 0; i < 8; ++i) {
    one.push_back({"s" + std::to_string(i), "a", ""});
    other.push_back({"s" + std::to_string(i), "b", ""});
  }
  const std::string words = disagreement({one, other});
  EXPECT_NE(words.find("rank 1 has s4 b, rank 0 has s4 a; and 3 more"), std::string::npos) << words;
}

TEST(AgreedSettings, EveryRankThrowsTheSameWords) {
  const AgreedSettings one = {{"--lr", "1", ""}}, other = {{"--lr", "2", "\xff bytes that are no text"}};
  // What each of two ranks would have sent, in both rounds.
  std::vector<std::vector<std::string>> sent(2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Exchange record = [&](const std::string& mine) -> std::vector<std::string> {
      sent[rank].push_back(mine);
      return {mine, sent[rank].size() == 1 ? mine + "!" : mine};  // digests differ
    };
    require_agreement(rank == 0 ? one : other, record);
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    std::size_t round = 0;
    const Exchange play = [&](const std::string&) {
      ++round;
      return std::vector<std::string>{sent[0][round - 1], sent[1][round - 1]};
    };
    try {
      require_agreement(rank == 0 ? one : other, play);
      FAIL() << "not noticed";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "ranks do not run the same: rank 1 has --lr \xff bytes that are no text, rank 0 has --lr 1");
    }
  }
}

}  // namespace
}  // namespace weft
