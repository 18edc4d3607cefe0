#include "comm/tcp/message.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

namespace weft::tcp {
namespace {

constexpr std::uint64_t kMagic = 0x7765'6674'0000'0002;

struct Ends {
  Ends() {
    std::array<int, 2> both{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both.data()), 0);
    near = Socket(both[0]);
    far = Socket(both[1]);
  }
  Socket near, far;
};

void send_header(const Socket& socket, std::uint64_t kind, std::uint64_t length) {
  const std::array<std::uint64_t, 3> header = {kMagic, kind, length};
  ASSERT_EQ(::send(socket.fd(), header.data(), sizeof header, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof header));
}

TEST(MessageReader, RefusesATextThatIsTooLongByItsHeader) {
  for (const std::uint64_t length : {std::uint64_t{kMaxStrangerBytes + 1}, std::uint64_t{1} << 28, ~std::uint64_t{0}}) {
    Ends ends;
    send_header(ends.near, 1, length);
    MessageReader reader;
    EXPECT_EQ(reader.read(ends.far), MessageReader::Status::broken);
    EXPECT_EQ(reader.reason(), fmt::format("it announced {} bytes where 512 are the most", length));
    EXPECT_LT(reader.text().capacity(), 100U);
  }
}

// A member may say much, but what it only announces takes no memory.
TEST(MessageReader, TakesMemoryForWhatHasComeNotForWhatIsAnnounced) {
  Ends ends;
  send_header(ends.near, static_cast<std::uint64_t>(MessageKind::text), kMaxMemberBytes);
  MessageReader reader(kMaxMemberBytes);
  EXPECT_EQ(reader.read(ends.far), MessageReader::Status::more);
  EXPECT_LE(reader.text().capacity(), std::size_t{128} << 10);
}

TEST(MessageReader, RefusesOtherKindsAndOtherVersions) {
  for (const std::uint64_t kind : {std::uint64_t{0}, std::uint64_t{100}, std::uint64_t{1} << 32 | 1}) {
    Ends ends;
    send_header(ends.near, kind, 0);
    EXPECT_EQ(MessageReader().read(ends.far), MessageReader::Status::broken) << kind;
  }
  Ends ends;
  const std::array<std::uint64_t, 3> older = {kMagic - 1, 1, 0};
  ASSERT_EQ(::send(ends.near.fd(), older.data(), sizeof older, 0), static_cast<ssize_t>(sizeof older));
  EXPECT_EQ(MessageReader().read(ends.far), MessageReader::Status::broken);
}

TEST(JoinedTexts, ComeApartAgain) {
  const std::vector<std::string> texts = {"", "a b", std::string("\0 7", 3), "12 x", std::string(5000, '9')};
  EXPECT_EQ(split_texts(join_texts(texts)), texts);
  EXPECT_EQ(split_texts(""), std::vector<std::string>{});
}

TEST(JoinedTexts, OtherBytesAreNone) {
  for (const char* bytes : {"x", "3", "3abc", "3 ab", " ", "-1 a", "+1 a", "99999999999999999999999 a", "1 a2",
                            "18446744073709551615 a", "1 ab"}) {
    EXPECT_EQ(split_texts(bytes), std::nullopt) << bytes;
  }
}

}  // namespace
}  // namespace weft::tcp
