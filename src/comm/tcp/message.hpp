// Short texts over a socket while ranks find each other: a magic word, a kind, a length, the text.
//
// Anybody may be at the other end, so a reader limits the length of a text. A longer text is refused by its header, and
// memory grows with the bytes that have arrived, not with those that were announced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/tcp/socket.hpp"

namespace weft::tcp {

// In the order in which two processes that prove themselves to each other send them (comm/tcp/handshake.hpp).
enum class MessageKind : std::uint32_t {
  greeting = 1,
  challenge,
  proof,
  here,       // I have seen your proof and stay
  welcome,    // all are here
  other_job,  // that was no proof for us; the greeter may try again
  bad_input,  // the text says what; the receiver throws Error
  failed,     // the text says why; the receiver throws RunFailed
  text,
};

Outcome send_message(const Socket& socket, MessageKind kind, const std::string& text, Clock::time_point deadline);

// Limits on the length of a text, by who sends it.
inline constexpr std::size_t kMaxStrangerBytes = 512;
inline constexpr std::size_t kMaxReasonBytes = std::size_t{64} << 10;     // bad_input and failed
inline constexpr std::size_t kMaxMemberBytes = std::size_t{16} << 20;     // what a rank gives to an exchange
inline constexpr std::size_t kMaxExchangeBytes = std::size_t{256} << 20;  // what all ranks give to it together

// Takes a message from a socket as its bytes come.
class MessageReader {
 public:
  explicit MessageReader(std::size_t longest = kMaxStrangerBytes) : longest_(longest) {}

  enum class Status { more, whole, broken };
  // Reads the available bytes without waiting. `broken` means closed, not one of our messages, or too long.
  Status read(const Socket& socket);
  // Until a whole message is there.
  Outcome read_until(const Socket& socket, Clock::time_point deadline);

  MessageKind kind() const { return kind_; }
  const std::string& text() const { return text_; }
  const std::string& reason() const { return reason_; }

 private:
  Status parse_header();

  std::size_t longest_;
  std::string header_;
  MessageKind kind_ = MessageKind::text;
  std::size_t length_ = 0;  // of the text when it is whole
  std::string text_;
  std::size_t filled_ = 0;  // of text_
  std::string reason_;
};

// Several texts as one.
std::string join_texts(const std::vector<std::string>& texts);
// Nothing where the bytes are no joined texts.
std::optional<std::vector<std::string>> split_texts(const std::string& joined);

}  // namespace weft::tcp
