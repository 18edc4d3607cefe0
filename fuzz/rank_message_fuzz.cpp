// Bytes as another process may send them while ranks find each other: the readers answer with a message, or refuse it.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "comm/tcp/contact.hpp"
#include "comm/tcp/handshake.hpp"
#include "comm/tcp/message.hpp"

namespace {

using weft::tcp::MessageReader;

// What a reader takes from a socket is at most as long as it may be, and no longer than what was sent.
void read_from_socket(const std::string& bytes, std::size_t longest) {
  constexpr std::size_t kMaxBytes = 32 << 10;  // which a socket takes without a reader
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) != 0) std::abort();
  const weft::tcp::Socket reader_end(ends[0]);
  weft::tcp::Socket writer_end(ends[1]);
  const std::size_t count = std::min(bytes.size(), kMaxBytes);
  if (::send(writer_end.fd(), bytes.data(), count, MSG_NOSIGNAL) != static_cast<ssize_t>(count)) std::abort();
  writer_end.close();
  MessageReader reader(longest);
  if (reader.read(reader_end) != MessageReader::Status::whole) return;
  if (reader.text().size() > longest || reader.text().size() > count) std::abort();
}

template <class Read>
void try_reading(Read read) {
  try {
    if (read() == false) std::abort();
  } catch (const weft::RunFailed&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft::tcp;
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_from_socket(text, kMaxStrangerBytes);
  read_from_socket(text, kMaxMemberBytes);
  if (const auto texts = split_texts(text)) {
    if (split_texts(join_texts(*texts)) != texts) std::abort();
  }
  if (const auto greeting = greeting_from(text)) {
    const auto again = greeting_from(to_text(*greeting));
    if (!again || again->claim != greeting->claim || again->nonce != greeting->nonce) std::abort();
  }
  try_reading([&] { return contact_from(to_text(contact_from(text, 0)), 0) == contact_from(text, 0); });
  try_reading([&] { return location_from(to_text(location_from(text, 0)), 0) == location_from(text, 0); });
  return 0;
}
