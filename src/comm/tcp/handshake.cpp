#include "comm/tcp/handshake.hpp"

#include <array>
#include <string_view>
#include <tuple>

#include "base/text.hpp"
#include "comm/tcp/proof.hpp"

namespace weft::tcp {

namespace {

constexpr std::size_t kNonceBytes = 32;

bool is_nonce(std::string_view text) {
  return text.size() == 2 * kNonceBytes && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// No part contains a line end, so no two conversations give the same text.
std::string words_of(const std::string& greeting, const std::string& challenge) {
  return greeting + "\n" + challenge;
}

std::string proof_of_visitor(const std::string& key, const std::string& words) {
  return keyed_hash(key, "weft visitor\n" + words);
}

std::string proof_of_host(const std::string& key, const std::string& words) {
  return keyed_hash(key, "weft host\n" + words);
}

// The next message, which must be of that kind.
Outcome expect(const Socket& socket, MessageKind kind, Clock::time_point deadline, std::string& text) {
  MessageReader reader;
  Outcome outcome = reader.read_until(socket, deadline);
  if (!outcome.ok()) return outcome;
  if (reader.kind() == MessageKind::other_job) return {"it serves another job: its secret is not ours"};
  if (reader.kind() != kind) return {"it does not speak as a rank of this version of weft does"};
  text = reader.text();
  return {};
}

// Digits alone, few enough for any rank.
std::optional<std::int64_t> number_from(const std::string& text) {
  constexpr std::size_t kMaxDigits = 9;
  if (text.empty() || text.size() > kMaxDigits || text.find_first_not_of("0123456789") != std::string::npos) return {};
  return std::stoll(text);
}

}  // namespace

std::string to_text(const Greeting& greeting) {
  const Claim& claim = greeting.claim;
  return fmt::format("{} {} {} {} {}", claim.purpose, claim.from, claim.to, claim.size, greeting.nonce);
}

std::optional<Greeting> greeting_from(const std::string& text) {
  const std::vector<std::string> parts = split(text, ' ');
  if (parts.size() != 5 || text.find('\n') != std::string::npos || !is_nonce(parts[4])) return std::nullopt;
  const auto from = number_from(parts[1]), to = number_from(parts[2]), size = number_from(parts[3]);
  if (parts[0].empty() || !from || !to || !size) return std::nullopt;
  return Greeting{{parts[0], *from, *to, *size}, parts[4]};
}

Outcome prove_to_host(const Socket& socket, const Claim& claim, const std::string& key, Clock::time_point deadline) {
  const std::string greeting = to_text({claim, random_hex(kNonceBytes)});
  std::string challenge, proof;
  Outcome outcome = send_message(socket, MessageKind::greeting, greeting, deadline);
  if (outcome.ok()) outcome = expect(socket, MessageKind::challenge, deadline, challenge);
  if (!outcome.ok()) return outcome;
  if (!is_nonce(challenge)) return {"it does not speak as a rank of this version of weft does"};
  const std::string words = words_of(greeting, challenge);
  outcome = send_message(socket, MessageKind::proof, proof_of_visitor(key, words), deadline);
  if (outcome.ok()) outcome = expect(socket, MessageKind::proof, deadline, proof);
  if (!outcome.ok()) return outcome;
  if (!is_same_hash(proof, proof_of_host(key, words))) return {"it cannot prove that it knows the job's secret"};
  return send_message(socket, MessageKind::here, "", deadline);
}

Visitor::Status Visitor::receive_answer(const std::string& key, const std::string& purpose, std::int64_t rank) {
  while (true) {
    const MessageReader::Status status = reader_.read(socket_);
    if (status == MessageReader::Status::broken) return Status::sent_away;
    if (status == MessageReader::Status::more) return Clock::now() < deadline_ ? Status::speaking : Status::sent_away;
    const Status answered = answer(key, purpose, rank);
    if (answered != Status::speaking) return answered;
    reader_ = MessageReader();
  }
}

// Does not wait for a visitor that does not take these few bytes at once.
bool Visitor::say(MessageKind kind, const std::string& text) {
  return send_message(socket_, kind, text, Clock::now()).ok();
}

Visitor::Status Visitor::answer(const std::string& key, const std::string& purpose, std::int64_t rank) {
  constexpr std::array kExpected = {MessageKind::greeting, MessageKind::proof, MessageKind::here};
  if (reader_.kind() != kExpected[static_cast<std::size_t>(stage_)]) return Status::sent_away;
  if (stage_ == Stage::decides) return Status::guest;
  if (stage_ == Stage::greets) {
    const std::optional<Greeting> greeting = greeting_from(reader_.text());
    if (!greeting || greeting->claim.purpose != purpose || greeting->claim.to != rank) return Status::sent_away;
    claim_ = greeting->claim;
    const std::string challenge = random_hex(kNonceBytes);
    words_ = words_of(reader_.text(), challenge);
    stage_ = Stage::proves;
    return say(MessageKind::challenge, challenge) ? Status::speaking : Status::sent_away;
  }
  if (!is_same_hash(reader_.text(), proof_of_visitor(key, words_))) {
    std::ignore = say(MessageKind::other_job, "");
    return Status::other_key;
  }
  stage_ = Stage::decides;
  return say(MessageKind::proof, proof_of_host(key, words_)) ? Status::speaking : Status::sent_away;
}

}  // namespace weft::tcp
