#include "base/input_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "base/test_folder.hpp"

namespace weft {
namespace {

using test::error_of, test::ScratchFolder;

// A pipe as a shell makes it for `weft verify <(...)`: a reader opens it by the number of its descriptor.
class ShellPipe {
 public:
  ShellPipe() { EXPECT_EQ(::pipe(ends_), 0); }
  ShellPipe(const ShellPipe&) = delete;
  ShellPipe& operator=(const ShellPipe&) = delete;
  ~ShellPipe() {
    close_writer();
    ::close(ends_[0]);
  }
  std::string name() const { return "/dev/fd/" + std::to_string(ends_[0]); }
  int writer() const { return ends_[1]; }
  void close_writer() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST(InputFile, SaysWhatIsNoFileWithoutWaiting) {
  const ScratchFolder folder("input_kinds");
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto words = [](const std::string& path) { return error_of([&] { read_text_file(path); }); };
  EXPECT_EQ(words(folder.file("absent")), folder.file("absent") + ": cannot be read: No such file or directory");
  EXPECT_EQ(words(folder.path().string()), folder.path().string() + ": is a folder, not a file");
  EXPECT_EQ(words(pipe), pipe + ": is a named pipe, not a file");
  EXPECT_EQ(words("/dev/zero"), "/dev/zero: is a device, not a file");
  std::filesystem::create_symlink("/dev/zero", folder.file("link"));
  EXPECT_EQ(words(folder.file("link")), folder.file("link") + ": is a device, not a file");
}

TEST(InputFile, RefusesATooLargeFileBeforeItIsRead) {
  const ScratchFolder folder("input_large");
  const std::string file = folder.write("large", "begin");
  std::filesystem::resize_file(file, std::uintmax_t{1} << 40);  // reading the hole would take hours
  EXPECT_EQ(error_of([&] { read_text_file(file); }), file + ": has 1099511627776 bytes; at most 1073741824 are read");
  EXPECT_EQ(read_text_file(folder.write("exact", "12345"), {.max_bytes = 5}), "12345");
  EXPECT_EQ(error_of([&] { read_text_file(folder.write("longer", "123456"), {.max_bytes = 5}); }),
            folder.file("longer") + ": has 6 bytes; at most 5 are read");
}

TEST(InputFile, ReadsAPipeOfTheShellToItsEnd) {
  ShellPipe pipe;
  const std::string text(300'000, 'x');  // more than a pipe holds, so the reader has to wait for the writer
  std::thread writer([&] {
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t written = ::write(pipe.writer(), text.data() + at, text.size() - at);
      if (written < 0) break;
      at += static_cast<std::size_t>(written);
    }
    pipe.close_writer();
  });
  EXPECT_EQ(read_text_file(pipe.name()), text);
  writer.join();
}

TEST(InputFile, EndsAPipeThatSaysTooMuchOrNothing) {
  ShellPipe pipe;
  ASSERT_EQ(::write(pipe.writer(), "123456", 6), 6);  // and stays open: waiting for its end would take forever
  EXPECT_EQ(error_of([&] { read_text_file(pipe.name(), {.max_piped_bytes = 5}); }),
            pipe.name() + ": has more than 5 bytes; at most 5 are read from a pipe");
  EXPECT_EQ(error_of([&] { read_text_file(pipe.name(), {.pipes = Pipes::refused}); }),
            pipe.name() + ": is a pipe, not a file");
  ShellPipe silent;
  silent.close_writer();
  EXPECT_EQ(error_of([&] { read_text_file(silent.name()); }),
            silent.name() + ": nothing came through the pipe (one process can read it, once)");
}

TEST(InputFile, ReadsAnyPlaceAndSaysWhenItIsGone) {
  const ScratchFolder folder("input_place");
  const std::string path = folder.write("file", "0123456789");
  const InputFile file(path);
  EXPECT_EQ(file.size(), 10);
  std::string middle(4, ' ');
  file.read_at(3, std::as_writable_bytes(std::span(middle)));
  EXPECT_EQ(middle, "3456");
  std::filesystem::resize_file(path, 5);
  EXPECT_EQ(error_of([&] { file.read_at(3, std::as_writable_bytes(std::span(middle))); }),
            path + ": ends before byte 7: it has changed while it was read");
}

}  // namespace
}  // namespace weft
