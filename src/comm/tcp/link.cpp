// The sending half of a link, and its opening and closing.
#include "comm/tcp/link.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "comm/tcp/link_frames.hpp"

namespace weft::tcp {

namespace {

constexpr std::int64_t kSliceBytes = 256 << 10;  // a small message waits behind at most one slice
constexpr std::size_t kHalfOfEarlySlots = kEarlySlots / 2;
constexpr std::size_t kStagingBytes = 4096;  // small, because data that is read along with a header is copied
constexpr int kSlicesPerPass = 4;
// Limits the unsent bytes that the system buffers, because they delay the ready frames behind them.
constexpr int kMaxUnsentBytes = 256 << 10;

}  // namespace

void Link::Channel::find_oldest_awaited() {
  const auto awaited = static_cast<std::int64_t>(announced - sent);  // early ones leave unannounced: below 0
  if (oldest_awaited < 0 && awaited > 0 && awaited <= in_sequence) oldest_awaited = last_announced - awaited + 1;
}

void TransferLine::push(Transfer& transfer) {
  transfer.next = nullptr;
  (first == nullptr ? first : last->next) = &transfer;
  last = &transfer;
}

void TransferLine::pop() {
  first = first->next;
  if (first == nullptr) last = nullptr;
}

Link::Link(std::int64_t rank, std::int64_t peer, Socket socket, Scratch& scratch, LinkKind kind, bool only_peer)
    : rank_(rank), peer_(peer), socket_(std::move(socket)), scratch_(scratch), kind_(kind), staging_(kStagingBytes) {
  ::setsockopt(socket_.fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsentBytes, sizeof kMaxUnsentBytes);
  if (kind == LinkKind::small_messages) return;
  pace(socket_);
  if (only_peer) return;
  open_windows_freely(socket_);
  window_.emplace(socket_);
}

LinkKind link_kind(std::int64_t bytes) {
  return bytes <= kMaxEarlyBytes ? LinkKind::small_messages : LinkKind::large_messages;
}

Link::~Link() = default;

void Link::set_ready(bool readable, bool writable) {
  readable_ = readable_ || readable;
  writable_ = writable_ || writable;
}

Link::Channel& Link::channel(std::int64_t number) {
  if (recent_ != nullptr && recent_->number == static_cast<std::uint32_t>(number)) return *recent_;
  std::unique_ptr<Channel>& found = channels_[number];
  if (!found) {
    found = std::make_unique<Channel>();
    found->number = static_cast<std::uint32_t>(number);
  }
  recent_ = found.get();
  return *found;
}

void Link::close(std::string why) {
  if (!open()) return;
  closed_ = std::move(why);
  news_ = true;
  socket_.close();
}

void Link::complete(Transfer& transfer) {
  transfer.finished = true;
  news_ = true;
}

void Link::send(Transfer& transfer) {
  Channel& line = channel(transfer.channel);
  line.out.push(transfer);
  take_turn(line);
  write();
}

bool Link::may_send(const Channel& line) const {
  if (line.out.first == nullptr) return false;
  if (line.announced > line.sent) return true;
  return line.out.first->total <= kMaxEarlyBytes && early_out_ < static_cast<std::int64_t>(kEarlySlots);
}

void Link::take_turn(Channel& line) {
  if (line.in_line || frame_.channel == &line || !may_send(line)) return;
  line.in_line = true;
  line.next_turn = nullptr;
  (first_turn_ == nullptr ? first_turn_ : last_turn_->next_turn) = &line;
  last_turn_ = &line;
}

void Link::choose_frame() {
  while (first_turn_ != nullptr) {
    Channel& line = *first_turn_;
    first_turn_ = line.next_turn;
    line.in_line = false;
    if (!may_send(line))
      continue;  // another channel took the last early slot; an announcement will bring this one back
    Transfer& transfer = *line.out.first;
    if (line.announced <= line.sent) ++early_out_;
    const std::int64_t slice = std::min(kSliceBytes, transfer.total - transfer.moved);
    frame_ = {&transfer, &line, {}, 0, slice};
    frame_.header = {kData, line.number, joined(slice, transfer.number), static_cast<std::uint64_t>(transfer.total)};
    return;
  }
}

// A sender's early slots are taken by messages kept here and by those whose announcements have not left. If it has none
// left, at least one of the two numbers is half of them or more.
bool Link::control_is_urgent() const {
  if (control_.empty()) return false;
  return kind_ == LinkKind::large_messages || hurried_ || control_sent_ > 0 || announcing_ >= kHalfOfEarlySlots ||
         kept_early_ >= kHalfOfEarlySlots;
}

bool Link::control_goes() const {
  return frame_.header_sent == 0 && !control_.empty() && (frame_.transfer != nullptr || control_is_urgent());
}

std::size_t Link::describe_output(std::span<iovec> entries) {
  std::size_t used = 0;
  if (control_goes()) entries[used++] = {control_.data() + control_sent_, control_.size() - control_sent_};
  if (frame_.transfer == nullptr) return used;
  if (frame_.header_sent < sizeof(Header)) {
    entries[used++] = {reinterpret_cast<std::byte*>(&frame_.header) + frame_.header_sent,
                       sizeof(Header) - frame_.header_sent};
  }
  return used + frame_.transfer->src.describe(entries.subspan(used), frame_.left);
}

void Link::account_output(std::int64_t bytes) {
  moved_ += static_cast<std::uint64_t>(bytes);
  if (control_goes()) {
    const std::size_t taken = std::min(static_cast<std::size_t>(bytes), control_.size() - control_sent_);
    control_sent_ += taken;
    bytes -= static_cast<std::int64_t>(taken);
    if (control_sent_ == control_.size()) {
      control_.clear();
      control_sent_ = 0;
      announcing_ = 0;
      hurried_ = false;
    }
  }
  if (frame_.transfer == nullptr) return;
  const std::size_t of_header = std::min(static_cast<std::size_t>(bytes), sizeof(Header) - frame_.header_sent);
  frame_.header_sent += of_header;
  bytes -= static_cast<std::int64_t>(of_header);
  frame_.transfer->src.advance(bytes);
  frame_.transfer->moved += bytes;
  frame_.left -= bytes;
  if (frame_.header_sent == sizeof(Header) && frame_.left == 0) end_outgoing_frame();
}

void Link::end_outgoing_frame() {
  Channel& line = *frame_.channel;
  Transfer& transfer = *frame_.transfer;
  frame_ = {};
  if (transfer.moved == transfer.total) {
    line.out.pop();
    ++line.sent;
    line.oldest_awaited = -1;
    line.find_oldest_awaited();
    complete(transfer);
  }
  take_turn(line);
}

void Link::write() {
  for (int slices = 0; open() && writable_ && slices < kSlicesPerPass; ++slices) {
    if (frame_.transfer == nullptr) choose_frame();
    std::array<iovec, kMaxListEntries> entries;
    msghdr message{};
    message.msg_iov = entries.data();
    message.msg_iovlen = describe_output(entries);
    if (message.msg_iovlen == 0) break;
    const ssize_t count = ::sendmsg(socket_.fd(), &message, MSG_NOSIGNAL);
    if (count >= 0) {
      account_output(count);
    } else if (errno != EINTR) {
      // The socket is full, or the peer is gone. In the latter case its last data is read first, and reading reports
      // the end.
      if (errno != EAGAIN) readable_ = true;
      writable_ = false;
    }
  }
}

void Link::handle_ready(Channel& line, std::uint64_t count, std::uint64_t last_number) {
  constexpr std::uint64_t kMaxNumber =
      std::numeric_limits<std::uint32_t>::max();  // messages of a channel are numbered in 32 bits
  if (count > kMaxNumber || last_number > kMaxNumber) {
    close(fmt::format("rank {} asked for {} messages at once (channel {})", peer_, count, line.number));
    return;
  }
  const auto last = static_cast<std::int64_t>(last_number), announced = static_cast<std::int64_t>(count);
  line.in_sequence = last - announced == line.last_announced ? line.in_sequence + announced : announced;
  line.last_announced = last;
  // Counts messages that have left, or begun to, before they were announced.
  const auto begun = static_cast<std::int64_t>(line.sent - line.announced) + (frame_.channel == &line ? 1 : 0);
  early_out_ -= std::clamp<std::int64_t>(begun, 0, announced);
  line.announced += count;
  line.find_oldest_awaited();
  take_turn(line);
}

void Link::look_for_counterpart(const Transfer& elsewhere) {
  const auto found = channels_.find(elsewhere.channel);
  if (!open() || found == channels_.end()) return;
  const Channel& line = *found->second;
  if (elsewhere.receives && line.first_early != nullptr && line.first_early->number == elsewhere.number) {
    mismatch_ = true;
    close(fmt::format("rank {} sends {} bytes where rank {} expects {} (channel {})", peer_, line.first_early->total,
                      rank_, elsewhere.total, elsewhere.channel));
  } else if (!elsewhere.receives && line.oldest_awaited == static_cast<std::int64_t>(elsewhere.number)) {
    mismatch_ = true;
    close(fmt::format("rank {} sends {} bytes where rank {} expects {} {} (channel {})", rank_, elsewhere.total, peer_,
                      elsewhere.total > kMaxEarlyBytes ? "at most" : "more than", kMaxEarlyBytes, elsewhere.channel));
  }
}

void Link::announce(const Transfer& receive) {
  ++announcing_;
  // Joins the announcements of consecutive messages of a channel, unless the frame has partly been sent.
  if (control_.size() >= control_sent_ + sizeof(Header)) {
    Header last;
    std::byte* place = control_.data() + control_.size() - sizeof last;
    std::memcpy(&last, place, sizeof last);
    if (last.channel == static_cast<std::uint32_t>(receive.channel) && last.total + 1 == receive.number) {
      ++last.slice;
      last.total = receive.number;
      std::memcpy(place, &last, sizeof last);
      return;
    }
  }
  const Header header{kReady, static_cast<std::uint32_t>(receive.channel), 1, receive.number};
  const auto* bytes = reinterpret_cast<const std::byte*>(&header);
  control_.insert(control_.end(), bytes, bytes + sizeof header);
}

void Link::finish(Clock::time_point deadline) {
  std::array<std::byte, 4096> ignored;
  while (open() && Clock::now() < deadline) {
    // Closing with unread bytes would reset the connection and destroy data that is still under way.
    const ssize_t count = ::recv(socket_.fd(), ignored.data(), ignored.size(), 0);
    if (count > 0) continue;
    int unacknowledged = 0;
    const bool gone = count == 0 || (errno != EAGAIN && errno != EINTR);
    if (gone || ::ioctl(socket_.fd(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  close("this rank left");
}

}  // namespace weft::tcp
