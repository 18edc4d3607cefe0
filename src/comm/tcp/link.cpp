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

#include "base/error.hpp"

namespace weft::tcp {

namespace {

enum FrameKind : std::uint32_t { kData = 0x77656601, kReady = 0x77656602 };

constexpr std::int64_t kSlice = 256 << 10;  // a small message waits behind one of them at most
constexpr std::int64_t kEarlyBytes = 32 << 10;
constexpr std::size_t kEarlySlots = 8;
constexpr std::size_t kManyOfTheSlots = kEarlySlots / 2;
constexpr std::size_t kStaging = 4096;  // small: what is read with a header is copied
constexpr std::size_t kEntries = 64;    // of a scatter or gather list
constexpr int kSlicesPerPass = 4;
constexpr std::int64_t kReadPerPass = 1 << 20;
// Bytes the system keeps that are not on the wire yet; what it keeps delays the ready frames behind it.
constexpr int kUnsentInSystem = 256 << 10;

// In the middle of a slice the system wakes us for this many bytes, not for every packet: beside busy compute threads a
// wake-up is what receiving costs.
constexpr std::int64_t kWorthWaking = 256 << 10;

// Of a data frame: bytes of the slice, which are few, and the message's number.
std::uint64_t joined(std::int64_t slice, std::uint32_t number) {
  return static_cast<std::uint64_t>(slice) | std::uint64_t{number} << 32;
}
std::int64_t slice_of(std::uint64_t joined) {
  return static_cast<std::int64_t>(joined & 0xffffffff);
}
std::uint32_t number_of(std::uint64_t joined) {
  return static_cast<std::uint32_t>(joined >> 32);
}

}  // namespace

struct Link::EarlyMessage {
  std::byte* data = nullptr;
  std::uint32_t number = 0;
  std::int64_t total = 0;
  std::int64_t arrived = 0;
  EarlyMessage* next = nullptr;
};

struct Link::Channel {
  std::uint32_t number = 0;
  TransferLine out;
  std::uint64_t sent = 0;       // messages that have left
  std::uint64_t announced = 0;  // receives the peer has posted
  // Numbers of announced messages: the oldest that has not left (-1: not known), the last, and how many up to it follow
  // each other.
  std::int64_t oldest_awaited = -1, last_announced = -2, in_sequence = 0;
  bool in_line = false;
  Channel* next_turn = nullptr;

  TransferLine in;
  EarlyMessage* first_early = nullptr;  // only while no receive is posted
  EarlyMessage* last_early = nullptr;

  void find_oldest_awaited();
};

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
    : rank_(rank), peer_(peer), socket_(std::move(socket)), scratch_(scratch), kind_(kind), staging_(kStaging) {
  ::setsockopt(socket_.fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentInSystem, sizeof kUnsentInSystem);
  if (kind == LinkKind::small_messages) return;
  pace(socket_);
  if (only_peer) return;
  open_windows_freely(socket_);
  window_.emplace(socket_);
}

LinkKind link_kind(std::int64_t bytes) {
  return bytes <= kEarlyBytes ? LinkKind::small_messages : LinkKind::large_messages;
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
  return line.out.first->total <= kEarlyBytes && early_out_ < static_cast<std::int64_t>(kEarlySlots);
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
    if (!may_send(line)) continue;  // another took the last early slot; its announcement will bring it back
    Transfer& transfer = *line.out.first;
    if (line.announced <= line.sent) ++early_out_;
    const std::int64_t slice = std::min(kSlice, transfer.total - transfer.moved);
    frame_ = {&transfer, &line, {}, 0, slice};
    frame_.header = {kData, line.number, joined(slice, transfer.number), static_cast<std::uint64_t>(transfer.total)};
    return;
  }
}

// The slots of a sender are taken by messages that are kept here and by those whose announcements have not left; where
// it has none left, one of the two is half of them or more.
bool Link::control_is_urgent() const {
  if (control_.empty()) return false;
  return kind_ == LinkKind::large_messages || hurried_ || control_sent_ > 0 || announcing_ >= kManyOfTheSlots ||
         kept_early_ >= kManyOfTheSlots;
}

bool Link::control_goes() const {
  return frame_.header_sent == 0 && !control_.empty() && (frame_.transfer != nullptr || control_is_urgent());
}

std::size_t Link::describe_output(std::span<iovec> entries) {
  std::size_t used = 0;
  if (control_goes()) {
    entries[used++] = {control_.data() + control_sent_, control_.size() - control_sent_};
  }
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
    std::array<iovec, kEntries> entries;
    msghdr message{};
    message.msg_iov = entries.data();
    message.msg_iovlen = describe_output(entries);
    if (message.msg_iovlen == 0) break;
    const ssize_t count = ::sendmsg(socket_.fd(), &message, MSG_NOSIGNAL);
    if (count >= 0) {
      account_output(count);
    } else if (errno != EINTR) {
      // Full; or the peer is gone: then what it had still sent is read first, and reading tells its end.
      if (errno != EAGAIN) readable_ = true;
      writable_ = false;
    }
  }
}

void Link::announce(const Transfer& receive) {
  ++announcing_;
  // Announcements of consecutive messages of a channel become one, unless a part of it has already gone.
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

void Link::receive(Transfer& transfer) {
  Channel& line = channel(transfer.channel);
  announce(transfer);
  if (line.first_early != nullptr) {
    take_early(line, transfer);
  } else {
    line.in.push(transfer);
  }
}

bool Link::fits(const Transfer& transfer, std::int64_t total, std::uint32_t number) {
  if (transfer.total == total && transfer.number == number) return true;
  mismatch_ = true;
  if (transfer.number == number) {
    close(fmt::format("rank {} sends {} bytes where rank {} expects {} (channel {})", peer_, total, rank_,
                      transfer.total, transfer.channel));
  } else {  // the one that is expected came over the other link
    close(fmt::format("rank {} sends {} bytes as message {} where rank {} expects {} as message {} (channel {})", peer_,
                      total, number, rank_, transfer.total, transfer.number, transfer.channel));
  }
  return false;
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
                      elsewhere.total > kEarlyBytes ? "at most" : "more than", kEarlyBytes, elsewhere.channel));
  }
}

void Link::take_early(Channel& line, Transfer& transfer) {
  EarlyMessage& early = *line.first_early;
  line.first_early = early.next;
  if (line.first_early == nullptr) line.last_early = nullptr;
  if (!fits(transfer, early.total, early.number)) return;
  transfer.dst.land(early.data, early.arrived, scratch_);
  transfer.moved = early.arrived;
  early.next = std::exchange(free_early_, &early);
  --kept_early_;
  if (transfer.moved == transfer.total) {
    complete(transfer);
  } else {  // the rest of it is arriving
    WEFT_CHECK(in_.early == &early && line.in.first == nullptr);
    in_.early = nullptr;
    in_.transfer = &transfer;
    line.in.push(transfer);
  }
}

Link::EarlyMessage* Link::keep_early(Channel& line, std::int64_t total) {
  if (early_.empty()) {
    early_memory_.resize(kEarlySlots * static_cast<std::size_t>(kEarlyBytes));
    early_.resize(kEarlySlots);
    for (std::size_t i = 0; i < kEarlySlots; ++i) {
      early_[i].data = early_memory_.data() + i * static_cast<std::size_t>(kEarlyBytes);
      early_[i].next = std::exchange(free_early_, &early_[i]);
    }
  }
  if (free_early_ == nullptr || total > kEarlyBytes) return nullptr;
  EarlyMessage& early = *std::exchange(free_early_, free_early_->next);
  early.total = total;
  early.arrived = 0;
  early.next = nullptr;
  ++kept_early_;
  (line.first_early == nullptr ? line.first_early : line.last_early->next) = &early;
  line.last_early = &early;
  return &early;
}

void Link::handle_ready(Channel& line, std::uint64_t count, std::uint64_t last_number) {
  constexpr std::uint64_t kMost =
      std::numeric_limits<std::uint32_t>::max();  // messages of a channel are numbered in 32 bits
  if (count > kMost || last_number > kMost) {
    close(fmt::format("rank {} asked for {} messages at once (channel {})", peer_, count, line.number));
    return;
  }
  const auto last = static_cast<std::int64_t>(last_number), announced = static_cast<std::int64_t>(count);
  line.in_sequence = last - announced == line.last_announced ? line.in_sequence + announced : announced;
  line.last_announced = last;
  // Those that have left, or begun to, before they were announced.
  const auto begun = static_cast<std::int64_t>(line.sent - line.announced) + (frame_.channel == &line ? 1 : 0);
  early_out_ -= std::clamp<std::int64_t>(begun, 0, announced);
  line.announced += count;
  line.find_oldest_awaited();
  take_turn(line);
}

void Link::begin_data(Channel& line, const Header& header) {
  const auto total = static_cast<std::int64_t>(header.total);
  in_ = {&line, line.in.first, nullptr, slice_of(header.slice)};
  if (in_.transfer != nullptr) {
    if (!fits(*in_.transfer, total, number_of(header.slice))) return;
  } else {
    in_.early = keep_early(line, total);
    if (in_.early != nullptr) in_.early->number = number_of(header.slice);
  }
  const std::int64_t room = in_.transfer != nullptr ? total - in_.transfer->moved : total;
  const bool is_cut = in_.early != nullptr && in_.left != total;  // small messages come whole
  if ((in_.transfer == nullptr && in_.early == nullptr) || is_cut || in_.left > room) {
    close(fmt::format("rank {} sent what nobody asked for (channel {}, {} bytes)", peer_, line.number, total));
    return;
  }
  if (in_.left == 0) end_incoming_frame();
}

void Link::begin_frame(const Header& header) {
  if (header.channel >= kChannels) {
    close(
        fmt::format("rank {} sent a frame of channel {}, which is not in 0..{}", peer_, header.channel, kChannels - 1));
  } else if (header.kind == kReady) {
    handle_ready(channel(header.channel), header.slice, header.total);
  } else if (header.kind == kData) {
    begin_data(channel(header.channel), header);
  } else {
    close(fmt::format("rank {} sent a frame of unknown kind", peer_));
  }
}

void Link::landed(std::int64_t count) {
  moved_ += static_cast<std::uint64_t>(count);
  in_.left -= count;
  (in_.transfer != nullptr ? in_.transfer->moved : in_.early->arrived) += count;
  if (in_.left == 0) end_incoming_frame();
}

void Link::land(const std::byte* bytes, std::int64_t count) {
  if (in_.transfer != nullptr) {
    in_.transfer->dst.land(bytes, count, scratch_);
  } else {
    std::memcpy(in_.early->data + in_.early->arrived, bytes, static_cast<std::size_t>(count));
  }
  landed(count);
}

void Link::end_incoming_frame() {
  Transfer* transfer = in_.transfer;
  Channel& line = *in_.channel;
  in_ = {};
  if (transfer == nullptr || transfer->moved < transfer->total) return;
  line.in.pop();
  complete(*transfer);
}

void Link::consume_staged() {
  while (open()) {
    const std::size_t staged = staged_end_ - staged_begin_;
    const std::byte* bytes = staging_.data() + staged_begin_;
    if (in_.left > 0 && staged > 0) {
      const std::int64_t count = std::min(in_.left, static_cast<std::int64_t>(staged));
      staged_begin_ += static_cast<std::size_t>(count);
      land(bytes, count);
    } else if (in_.left == 0 && staged >= sizeof(Header)) {
      Header header;
      std::memcpy(&header, bytes, sizeof header);
      staged_begin_ += sizeof header;
      begin_frame(header);
    } else {
      break;
    }
  }
  const std::size_t rest = staged_end_ - staged_begin_;
  if (rest > 0) std::memmove(staging_.data(), staging_.data() + staged_begin_, rest);
  staged_begin_ = 0;
  staged_end_ = rest;
}

// The bytes of the current slice go where they belong, and some more behind them into the staging buffer.
std::size_t Link::describe_input(std::span<iovec> entries) {
  std::size_t used = 0;
  std::int64_t described = 0;
  if (in_.left > 0 && in_.transfer != nullptr) {
    used = in_.transfer->dst.describe(entries.first(entries.size() - 1), in_.left, scratch_);
    for (std::size_t i = 0; i < used; ++i) described += static_cast<std::int64_t>(entries[i].iov_len);
  } else if (in_.left > 0) {
    entries[used++] = {in_.early->data + in_.early->arrived, static_cast<std::size_t>(in_.left)};
    described = in_.left;
  }
  if (described == in_.left) entries[used++] = {staging_.data() + staged_end_, staging_.size() - staged_end_};
  return used;
}

void Link::read() {
  std::int64_t budget = kReadPerPass;
  const bool could = readable_;
  const std::uint64_t moved_before = moved_;
  while (open() && readable_ && budget > 0) {
    std::array<iovec, kEntries> entries;
    const std::size_t used = describe_input(entries);
    std::int64_t room = 0;
    for (std::size_t i = 0; i < used; ++i) room += static_cast<std::int64_t>(entries[i].iov_len);
    const ssize_t count = ::readv(socket_.fd(), entries.data(), static_cast<int>(used));
    if (count > 0) {
      budget -= count;
      // Less than there was room for: that was all. What trickles in meanwhile is worth no call of its own.
      if (count < room) readable_ = false;
      const std::int64_t direct = std::min<std::int64_t>(count, in_.left);
      staged_end_ += static_cast<std::size_t>(count - direct);
      if (direct > 0) {
        if (in_.transfer != nullptr) in_.transfer->dst.landed(direct, scratch_);
        landed(direct);
      }
      consume_staged();
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      close("its connection closed");
    } else if (errno == EAGAIN) {
      readable_ = false;
    }
  }
  const bool data_came = moved_ != moved_before;
  if (data_came && open() && kind_ == LinkKind::large_messages && in_.left == 0) acknowledge_now(socket_);
  if (could && window_) window_->received(kReadPerPass - budget, Clock::now());
  const std::int64_t worth_waking = window_ ? std::min(kWorthWaking, window_->worth_reading()) : kWorthWaking;
  wake_for(std::clamp<std::int64_t>(in_.left, 1, worth_waking));
}

void Link::wake_for(std::int64_t bytes) {
  if (!open() || bytes == wakes_for_) return;
  const int count = static_cast<int>(bytes);
  if (::setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVLOWAT, &count, sizeof count) == 0) wakes_for_ = bytes;
}

void Link::finish(Clock::time_point deadline) {
  std::array<std::byte, 4096> ignored;
  while (open() && Clock::now() < deadline) {
    // Unread bytes at closing would reset the connection and take away what is still under way.
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
