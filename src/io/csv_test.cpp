#include "io/csv.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace weft {
namespace {

TEST(Csv, NamesCellsByTheHeader) {
  const std::vector<CsvRow> rows = read_csv("# measured in May\ntp,note\n8,\"a, b\"\r\n\n4,\n", "runs.csv");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].line, 3);
  EXPECT_EQ(rows[0].text("tp"), "8");
  EXPECT_EQ(rows[0].text("note"), "a, b");
  EXPECT_EQ(rows[1].text("note"), "");
  EXPECT_EQ(rows[1].text("pp"), "");
}

std::string message_of(const std::string& text) {
  try {
    read_csv(text, "runs.csv");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Csv, ARowOfAnotherLengthIsAnErrorWithItsLine) {
  EXPECT_EQ(message_of("tp,pp\n1,2\n1\n"), "runs.csv: line 3: has 1 cells, and the header 2");
}

TEST(Csv, AColumnStandsThereOnce) {
  EXPECT_EQ(message_of("tp,tp\n1,2\n"), "runs.csv: line 1: column 'tp' stands there twice");
}

}  // namespace
}  // namespace weft
