#include <gtest/gtest.h>

#include <algorithm>

#include "base/checked.hpp"
#include "base/enum_name.hpp"
#include "base/table.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

TEST(Units, ParseBandwidthTellsBitsFromBytes) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("200Gb/s", "nic").bytes_per_second, 25e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("25GB/s", "nic").bytes_per_second, 25e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1GiB/s", "nic").bytes_per_second, 1073741824.0);
  EXPECT_DOUBLE_EQ(parse_bandwidth("8b/s", "nic").bytes_per_second, 1.0);
}

TEST(Units, BadQuantitiesNameTheThingTheValueAndWhatIsAllowed) {
  for (const char* bad : {"", "fast", "-1GB/s", "200", "200Gb", "nanGB/s", "0GB/s", "1e999GB/s"}) {
    try {
      parse_bandwidth(bad, "--cluster nic");
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("--cluster nic"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(parse_time("5", "latency"), Error);
  EXPECT_THROW(parse_bytes("12parsec", "memory"), Error);
  EXPECT_THROW(parse_integer("12x", "layers"), Error);
}

TEST(Units, TimesAndSizesRoundTripThroughTheirUnits) {
  EXPECT_EQ(parse_time("1.5ms", "t"), Nanos{1'500'000});
  EXPECT_EQ(parse_bytes("40GiB", "m"), Bytes{42949672960});
  EXPECT_EQ(format_time(Nanos{1'500'000}), "1.50 ms");
  EXPECT_EQ(format_bytes(Bytes{1536}), "1.50 KiB");
  EXPECT_EQ(format_count(68976648192), "68,976,648,192");
  EXPECT_EQ(format_count(-1234), "-1,234");
}

TEST(Names, NearestSuggestsATypingErrorAndListsOtherwise) {
  const std::vector<std::string> names{"llama2-7b", "llama2-70b", "gpt3-175b"};
  EXPECT_EQ(nearest_name("lama2-70b", names), "llama2-70b");
  EXPECT_EQ(nearest_name("megatron-39b", std::vector<std::string>{"megatron-22b", "megatron-39.1b"}), "megatron-39.1b");
  EXPECT_EQ(nearest_name("zzzzzzzzz", names), "");
  EXPECT_EQ(suggestion("zzzzzzzzz", names), "; allowed: llama2-7b, llama2-70b, gpt3-175b");
}

TEST(Checked, ProductThatOverflowsIsAnErrorNotAWrap) {
  EXPECT_EQ(checked_product({3, 4, 5}, "x"), 60);
  EXPECT_THROW(checked_product({INT64_MAX, 2}, "x"), Error);
  EXPECT_THROW(checked_sum({INT64_MAX, 1}, "x"), Error);
}

// Columns of 4, 2, 3 and 2 with two spaces between: the first three take 13, all of them 17.
TEST(Table, PutsColumnsThatDoNotFitBelow) {
  TextTable table({"name", "x", "yyy", "zz"});
  table.add_row({"a", "1", "2", "3"});
  table.add_row({"b", "10", "20", "30"});
  const std::string whole =
      "name   x  yyy  zz\n"
      "-----------------\n"
      "a      1    2   3\n"
      "b     10   20  30\n";
  EXPECT_EQ(table.to_string(), whole);
  EXPECT_EQ(table.to_string(17), whole);
  EXPECT_EQ(table.to_string(16),
            "name   x  yyy\n"
            "-------------\n"
            "a      1    2\n"
            "b     10   20\n"
            "\n"
            "name  zz\n"
            "--------\n"
            "a      3\n"
            "b     30\n");
  // A column is shown however narrow the terminal is.
  EXPECT_EQ(std::ranges::count(table.to_string(1), '\n'), 3 * 4 + 2);
}

TEST(Table, AColumnOfWordsThatIsTooWideBeginsAtOnce) {
  TextTable table({"name", "words"});
  table.add_row({"a", "one two three four"});
  EXPECT_EQ(table.to_string(10), "name  words\n----------\na     one two three four\n");
  EXPECT_EQ(TextTable({"alone"}).to_string(3), "alone\n---\n");
}

TEST(Table, AlignsColumnsByCodePoints) {
  TextTable table({"name", "x"});
  table.add_row({"bé", "10"});
  EXPECT_EQ(table.to_string(), "name   x\n--------\nbé    10\n");
}

TEST(EnumNames, AreSplitAtSpacesAndUnknownValuesHaveNone) {
  enum class Colour { red, dark_green, blue };
  static constexpr auto kNames = split_names<3>("red dark_green blue");
  EXPECT_EQ(enum_name(kNames, Colour::red), "red");
  EXPECT_EQ(enum_name(kNames, Colour::dark_green), "dark_green");
  EXPECT_EQ(enum_name(kNames, Colour::blue), "blue");
  EXPECT_EQ(enum_name(kNames, static_cast<Colour>(3)), "?");
}

}  // namespace
}  // namespace weft
