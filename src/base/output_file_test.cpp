#include "base/output_file.hpp"

#include <gtest/gtest.h>

#include "base/test_file_limits.hpp"
#include "base/test_folder.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::error_of, test::FileSizeLimit, test::ScratchFolder;

std::int64_t files_in(const ScratchFolder& folder) {
  return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator());
}

TEST(OutputFile, HasAllBytesUnderItsNameAndNothingBeside) {
  for (const Durability durability : {Durability::written, Durability::synchronized}) {
    const ScratchFolder folder("output_whole");
    std::string text(200'000, 'a');
    text.append("\0end", 4);
    write_file(folder.file("file"), [&](std::ostream& out) { out << text.substr(0, 7) << text.substr(7); }, durability);
    EXPECT_EQ(folder.read("file"), text);
    EXPECT_EQ(files_in(folder), 1);
    write_file(folder.file("file"), [](std::ostream&) {}, durability);
    EXPECT_EQ(folder.read("file"), "");
  }
}

TEST(OutputFile, LeavesWhatWasThereWhereItCannotBeWritten) {
  const ScratchFolder folder("output_full");
  const std::string path = folder.write("file", "old");
  std::string words;
  {
    const FileSizeLimit limit(100'000);
    try {
      write_file(path, [](std::ostream& out) { out << std::string(150'000, 'x') << "more" << std::flush; });
    } catch (const RunFailed& failure) {
      words = failure.what();
    }
  }
  EXPECT_EQ(words, path + ": cannot be written to its end: File too large");
  EXPECT_EQ(folder.read("file"), "old");
  EXPECT_EQ(files_in(folder), 1);
}

// A writer that looks at its stream knows less than the file does.
TEST(OutputFile, SaysWhyTheStreamOfAWriterWentBad) {
  const ScratchFolder folder("output_bad_stream");
  const auto write = [](std::ostream& out) {
    out << std::string(150'000, 'x');
    if (!out) fail("the stream failed");
  };
  const FileSizeLimit limit(100'000);
  EXPECT_THROW(write_file(folder.file("file"), write), RunFailed);
  EXPECT_EQ(files_in(folder), 0);
}

TEST(OutputFile, LeavesNothingWhereTheWriterGivesUp) {
  const ScratchFolder folder("output_gives_up");
  const auto give_up = [](std::ostream& out) {
    out << "half";
    fail("no more");
  };
  EXPECT_EQ(error_of([&] { write_file(folder.file("file"), give_up); }), "no more");
  EXPECT_EQ(files_in(folder), 0);
}

TEST(OutputFile, NamesTheTargetThatCannotBeMade) {
  const ScratchFolder folder("output_absent");
  const auto nothing = [](std::ostream&) {};
  EXPECT_EQ(error_of([&] { write_file(folder.file("no/such"), nothing); }),
            folder.file("no/such") + ": cannot be written: No such file or directory");
  fs::create_directory(folder.file("taken"));
  EXPECT_EQ(error_of([&] { write_file(folder.file("taken"), nothing); }),
            folder.file("taken") + ": cannot be written: Is a directory");
  EXPECT_EQ(files_in(folder), 1);
}

}  // namespace
}  // namespace weft
