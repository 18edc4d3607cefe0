// How two processes prove to each other that they know a key, without telling it to anybody who does not.
//
//   visitor                                        host
//   greeting: who it is, for whom, a random word →
//                                                ← challenge: a random word
//   proof: keyed hash of both words              →   a visitor without the key ends here, and has learned nothing
//                                                ← proof: another keyed hash of both words
//   here: I have seen it and stay                →   now it is a guest
//
// Fresh random words make an overheard proof useless later. The two sides hash different labels, so a message cannot be
// reflected to its sender. All claims of the greeting are hashed too. The visitor proves itself first: a stranger
// without the key gets nothing against which it could test guessed keys. docs/security.md says what this does not
// protect.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "comm/tcp/message.hpp"
#include "comm/tcp/socket.hpp"

namespace weft::tcp {

// What a visitor claims about itself.
struct Claim {
  std::string purpose;              // a word: what the connection is for
  std::int64_t from = -1, to = -1;  // ranks
  std::int64_t size = -1;           // how many ranks there are
  friend bool operator==(const Claim&, const Claim&) = default;
};

// Time limit of a handshake, during which the other side may be a stranger.
inline constexpr std::chrono::seconds kHandshakeTime{5};

// The visitor's side, on a connection that it has made. On success the host has proven itself too, and both are done.
Outcome prove_to_host(const Socket& socket, const Claim& claim, const std::string& key, Clock::time_point deadline);

// The host's side. It advances as the visitor's messages arrive and never waits.
class Visitor {
 public:
  explicit Visitor(Socket socket) : socket_(std::move(socket)), deadline_(Clock::now() + kHandshakeTime) {}

  enum class Status : std::uint8_t { speaking, guest, other_key, sent_away };
  // Processes the bytes that have arrived. Visitors must come for `purpose` and to `rank`.
  Status receive_answer(const std::string& key, const std::string& purpose, std::int64_t rank);

  bool has_greeted() const { return stage_ != Stage::greets; }
  bool has_proven_itself() const { return stage_ == Stage::decides; }
  Clock::time_point deadline() const { return deadline_; }
  const Claim& claim() const { return claim_; }
  const Socket& socket() const { return socket_; }
  Socket take_socket() { return std::move(socket_); }

 private:
  enum class Stage : std::uint8_t { greets, proves, decides };
  Status answer(const std::string& key, const std::string& purpose, std::int64_t rank);
  bool say(MessageKind kind, const std::string& text);

  Socket socket_;
  Clock::time_point deadline_;
  MessageReader reader_;
  Stage stage_ = Stage::greets;
  Claim claim_;
  std::string words_;  // the greeting and the challenge, as both sides hash them
};

// Converts a greeting to text and back. Reading returns nothing where the text is not a greeting.
struct Greeting {
  Claim claim;
  std::string nonce;
};
std::string to_text(const Greeting& greeting);
std::optional<Greeting> greeting_from(const std::string& text);

}  // namespace weft::tcp
