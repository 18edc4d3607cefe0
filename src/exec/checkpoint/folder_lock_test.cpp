#include "exec/checkpoint/folder_lock.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/test_folder.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::error_of, test::ScratchFolder;

std::string words_of_second(const fs::path& folder) {
  return error_of([&] { FolderLock second(folder); });
}

TEST(FolderLock, IsHeldByOneAtATimeAndNamesIt) {
  const ScratchFolder scratch("lock_one");
  {
    const FolderLock first(scratch.path());
    EXPECT_TRUE(first.is_enforced());
    const std::string words = words_of_second(scratch.path());
    const std::string expected =
        "--checkpoint " + scratch.path().string() + ": another run saves there: process " + std::to_string(::getpid());
    EXPECT_TRUE(words.starts_with(expected + " on host ")) << words;
  }
  EXPECT_EQ(words_of_second(scratch.path()), "");  // given back
}

// A child takes the lock, says so and waits; it is killed without a chance to give it back.
TEST(FolderLock, IsFreeWhenItsHolderIsKilled) {
  const ScratchFolder scratch("lock_killed");
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(scratch.path());
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_NE(words_of_second(scratch.path()).find("process " + std::to_string(child)), std::string::npos);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(scratch.path() / ".lock"));
  EXPECT_EQ(words_of_second(scratch.path()), "");
  for (const int end : ready) ::close(end);
}

TEST(FolderLock, SaysThatNothingCanBeWrittenThere) {
  // Not even for root.
  EXPECT_TRUE(words_of_second("/sys").starts_with("--checkpoint /sys: cannot be written to: .lock: "));
}

TEST(FolderLock, FollowsNoLinkAndWaitsForNoPipe) {
  const ScratchFolder scratch("lock_special");
  const std::string target = scratch.write("precious", "contents");
  fs::create_symlink(target, scratch.file(".lock"));
  EXPECT_NE(words_of_second(scratch.path()), "");
  EXPECT_EQ(scratch.read("precious"), "contents");
  fs::remove(scratch.file(".lock"));
  ASSERT_EQ(::mkfifo(scratch.file(".lock").c_str(), 0600), 0);
  EXPECT_NE(words_of_second(scratch.path()).find(".lock is no regular file"), std::string::npos);
}

TEST(FolderLock, IsTakenAgainWhereItsFileWasRemoved) {
  const ScratchFolder scratch("lock_removed");
  const fs::path folder = scratch.path() / "folder";
  fs::create_directory(folder);
  FolderLock lock(folder);
  fs::remove_all(folder);
  lock.keep();
  EXPECT_NE(words_of_second(folder), "");
  fs::remove(folder / ".lock");
  const FolderLock other(folder);  // nothing tells it of the first
  EXPECT_NE(error_of([&] { lock.keep(); }).find("another run saves there"), std::string::npos);
}

}  // namespace
}  // namespace weft
