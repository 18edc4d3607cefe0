// The receiving half of a link.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "comm/tcp/link.hpp"
#include "comm/tcp/link_frames.hpp"

namespace weft::tcp {

namespace {

constexpr std::int64_t kReadBytesPerPass = 1 << 20;
// Within a slice the system wakes us for this many bytes, not for every packet: beside busy compute threads the
// wake-ups are the main cost of receiving.
constexpr std::int64_t kMaxWakeBytes = 256 << 10;

}  // namespace

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
  } else {  // the expected message came over the other link
    close(fmt::format("rank {} sends {} bytes as message {} where rank {} expects {} as message {} (channel {})", peer_,
                      total, number, rank_, transfer.total, transfer.number, transfer.channel));
  }
  return false;
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
    early_memory_.resize(kEarlySlots * static_cast<std::size_t>(kMaxEarlyBytes));
    early_.resize(kEarlySlots);
    for (std::size_t i = 0; i < kEarlySlots; ++i) {
      early_[i].data = early_memory_.data() + i * static_cast<std::size_t>(kMaxEarlyBytes);
      early_[i].next = std::exchange(free_early_, &early_[i]);
    }
  }
  if (free_early_ == nullptr || total > kMaxEarlyBytes) return nullptr;
  EarlyMessage& early = *std::exchange(free_early_, free_early_->next);
  early.total = total;
  early.arrived = 0;
  early.next = nullptr;
  ++kept_early_;
  (line.first_early == nullptr ? line.first_early : line.last_early->next) = &early;
  line.last_early = &early;
  return &early;
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
  if (header.channel >= kMaxChannels) {
    close(fmt::format("rank {} sent a frame of channel {}, which is not in 0..{}", peer_, header.channel,
                      kMaxChannels - 1));
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

// Describes the destination of the current slice, and behind it the staging buffer for what follows.
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
  std::int64_t budget = kReadBytesPerPass;
  const bool could = readable_;
  const std::uint64_t moved_before = moved_;
  while (open() && readable_ && budget > 0) {
    std::array<iovec, kMaxListEntries> entries;
    const std::size_t used = describe_input(entries);
    std::int64_t room = 0;
    for (std::size_t i = 0; i < used; ++i) room += static_cast<std::int64_t>(entries[i].iov_len);
    const ssize_t count = ::readv(socket_.fd(), entries.data(), static_cast<int>(used));
    if (count > 0) {
      budget -= count;
      // A short read means that no more was there. What trickles in meanwhile is not worth another call.
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
  if (could && window_) window_->received(kReadBytesPerPass - budget, Clock::now());
  const std::int64_t max_wake_bytes = window_ ? std::min(kMaxWakeBytes, window_->min_read_bytes()) : kMaxWakeBytes;
  wake_for(std::clamp<std::int64_t>(in_.left, 1, max_wake_bytes));
}

void Link::wake_for(std::int64_t bytes) {
  if (!open() || bytes == wakes_for_) return;
  const int count = static_cast<int>(bytes);
  if (::setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVLOWAT, &count, sizeof count) == 0) wakes_for_ = bytes;
}

}  // namespace weft::tcp
