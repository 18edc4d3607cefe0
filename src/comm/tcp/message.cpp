#include "comm/tcp/message.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace weft::tcp {

namespace {

// "weft" and the protocol version. A machine with the other byte order reads a different word.
constexpr std::uint64_t kMagic = 0x7765'6674'0000'0002;
constexpr std::size_t kFirstPortion = std::size_t{64} << 10;  // of a text, in bytes

struct Header {
  std::uint64_t magic = kMagic;
  std::uint64_t kind = 0;
  std::uint64_t length = 0;
};

}  // namespace

Outcome send_message(const Socket& socket, MessageKind kind, const std::string& text, Clock::time_point deadline) {
  const Header header{kMagic, static_cast<std::uint64_t>(kind), text.size()};
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes += text;
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = ::send(socket.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno != EAGAIN && errno != EINTR) {
      return {error_text(errno)};
    } else if (!wait_for(socket, POLLOUT, deadline)) {
      return {"no answer in time"};
    }
  }
  return {};
}

MessageReader::Status MessageReader::parse_header() {
  Header header;
  std::memcpy(&header, header_.data(), sizeof header);
  const bool is_known = header.kind >= static_cast<std::uint64_t>(MessageKind::greeting) &&
                        header.kind <= static_cast<std::uint64_t>(MessageKind::text);
  if (header.magic != kMagic || !is_known) {
    reason_ = "it does not speak as a rank of this version of weft does";
    return Status::broken;
  }
  if (header.length > longest_) {
    reason_ = fmt::format("it announced {} bytes where {} are the most", header.length, longest_);
    return Status::broken;
  }
  kind_ = static_cast<MessageKind>(header.kind);
  length_ = header.length;
  return length_ == 0 ? Status::whole : Status::more;
}

MessageReader::Status MessageReader::read(const Socket& socket) {
  while (true) {
    const bool in_header = header_.size() < sizeof(Header);
    if (!in_header && filled_ == text_.size()) text_.resize(std::min(length_, std::max(kFirstPortion, 2 * filled_)));
    char buffer[sizeof(Header)];
    char* to = in_header ? buffer : text_.data() + filled_;
    const std::size_t room = in_header ? sizeof(Header) - header_.size() : text_.size() - filled_;
    const ssize_t count = ::recv(socket.fd(), to, room, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return Status::more;
    if (count <= 0) {
      reason_ = "its connection closed";
      return Status::broken;
    }
    if (!in_header) {
      filled_ += static_cast<std::size_t>(count);
      if (filled_ == length_) return Status::whole;
      continue;
    }
    header_.append(buffer, static_cast<std::size_t>(count));
    if (header_.size() < sizeof(Header)) continue;
    const Status status = parse_header();
    if (status != Status::more) return status;
  }
}

Outcome MessageReader::read_until(const Socket& socket, Clock::time_point deadline) {
  while (true) {
    switch (read(socket)) {
      case Status::whole:
        return {};
      case Status::broken:
        return {reason_};
      case Status::more:
        if (!wait_for(socket, POLLIN, deadline)) return {"no answer in time"};
    }
  }
}

std::string join_texts(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += fmt::format("{} {}", text.size(), text);
  return joined;
}

std::optional<std::vector<std::string>> split_texts(const std::string& joined) {
  std::vector<std::string> texts;
  const char* at = joined.data();
  const char* const end = at + joined.size();
  while (at != end) {
    std::size_t length = 0;
    const auto [behind, error] = std::from_chars(at, end, length);
    if (error != std::errc{} || behind == end || *behind != ' ') return std::nullopt;
    at = behind + 1;
    if (length > static_cast<std::size_t>(end - at)) return std::nullopt;
    texts.emplace_back(at, length);
    at += length;
  }
  return texts;
}

}  // namespace weft::tcp
