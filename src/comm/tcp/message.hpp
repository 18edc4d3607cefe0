// Short texts over a socket while ranks find each other: a magic word, a kind, a length, the text.
#pragma once

#include <cstdint>
#include <string>

#include "comm/tcp/socket.hpp"

namespace weft::tcp {

enum class MessageKind : std::uint32_t {
  greeting = 1,
  welcome,
  other_job,  // a greeting that was meant for others; the greeter may try again
  bad_input,  // the text says what; the receiver throws Error
  failed,     // the text says why; the receiver throws RunFailed
  text,
};

Outcome send_message(const Socket& socket, MessageKind kind, const std::string& text, Clock::time_point deadline);

// Takes a message from a socket as its bytes come.
class MessageReader {
 public:
  enum class Status { more, whole, broken };
  // Reads what is there, without waiting. Broken: closed, or not one of our messages.
  Status read(const Socket& socket);
  // Until a whole message is there.
  Outcome read_until(const Socket& socket, Clock::time_point deadline);

  MessageKind kind() const { return kind_; }
  const std::string& text() const { return text_; }
  const std::string& reason() const { return reason_; }
  void reset() { *this = {}; }

 private:
  Status parse_header();

  std::string header_;
  MessageKind kind_ = MessageKind::text;
  std::string text_;
  std::size_t filled_ = 0;  // of text_
  std::string reason_;
};

}  // namespace weft::tcp
