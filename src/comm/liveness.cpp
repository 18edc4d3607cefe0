#include "comm/liveness.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "comm/tcp/mesh.hpp"

namespace weft {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kFarewellTime{1};  // for the others to receive our goodbye
constexpr std::size_t kMaxReasonBytes = 4096;

enum class WordKind : std::uint32_t { beat = 1, goodbye, lost };

struct Word {
  WordKind kind = WordKind::beat;
  std::uint32_t rank = 0;    // of a loss: who is lost
  std::uint32_t by = 0;      // who noticed it first
  std::uint32_t length = 0;  // of the reason that follows
};

struct Neighbour {
  std::int64_t rank = -1;
  tcp::Socket socket;
  Clock::time_point last_heard;
  std::string received;  // bytes of a message that is not complete yet
  std::string to_send;   // what the socket did not take
  bool left = false;
};

std::string bytes_of(WordKind kind, std::int64_t rank, std::int64_t by, const std::string& reason) {
  const std::string cut = reason.substr(0, kMaxReasonBytes);
  const Word word{kind, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(by),
                  static_cast<std::uint32_t>(cut.size())};
  std::string bytes(sizeof word, '\0');
  std::memcpy(bytes.data(), &word, sizeof word);
  return bytes + cut;
}

void flush(Neighbour& neighbour) {
  while (neighbour.socket && !neighbour.to_send.empty()) {
    const ssize_t count =
        ::send(neighbour.socket.fd(), neighbour.to_send.data(), neighbour.to_send.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // the socket is full, or closed, which reading will report
    neighbour.to_send.erase(0, static_cast<std::size_t>(count));
  }
}

void say(Neighbour& neighbour, const std::string& bytes) {
  if (!neighbour.socket) return;
  neighbour.to_send += bytes;
  flush(neighbour);
}

}  // namespace

// One mutex guards all state: the thread's passes are short and never wait while they hold it.
class Liveness::Watch {
 public:
  Watch(std::int64_t rank, std::int64_t size, const Exchange& exchange, LivenessOptions options)
      : rank_(rank), size_(size), options_(std::move(options)) {
    tcp::MeshOptions mesh;
    mesh.rank = rank;
    mesh.size = size;
    mesh.neighbours = Liveness::neighbours(rank, size, options_.mesh_limit);
    mesh.own_address = options_.own_address;
    mesh.secret = options_.secret;
    mesh.timeout = options_.connect_timeout;
    std::vector<tcp::Socket> sockets = tcp::connect_mesh(mesh, exchange);
    last_pass_ = Clock::now();
    for (const std::int64_t peer : mesh.neighbours) {
      neighbours_.push_back({peer, std::move(sockets[peer]), last_pass_, {}, {}, false});
    }
    wake_ = tcp::Socket(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    thread_ = std::thread([this] { run(); });
  }

  ~Watch() {
    leaving_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.fd(), &one, sizeof one);
    thread_.join();
  }

  std::optional<LostRank> lost() const {
    const std::lock_guard lock(mutex_);
    return loss_for_us();
  }

  std::chrono::nanoseconds silence(std::int64_t rank) const {
    const std::lock_guard lock(mutex_);
    const Neighbour* neighbour = find(rank);
    if (neighbour == nullptr || neighbour->left) return {};
    return std::max(last_pass_ - neighbour->last_heard, Clock::duration::zero());
  }

  bool left(std::int64_t rank) const {
    const std::lock_guard lock(mutex_);
    const Neighbour* neighbour = find(rank);
    return neighbour != nullptr && neighbour->left;
  }

  void declare_lost(const LostRank& cause) {
    {
      const std::lock_guard lock(mutex_);
      note_loss(cause, rank_);
    }
    report_loss();
  }

 private:
  void run() {
    Clock::time_point next_beat = Clock::now();
    std::optional<Clock::time_point> farewell_ends;
    while (true) {
      wait_for_words(farewell_ends.value_or(next_beat), !farewell_ends);
      {
        const std::lock_guard lock(mutex_);
        listen();
        if (leaving_ && !farewell_ends) {
          say_goodbye();
          farewell_ends = Clock::now() + kFarewellTime;
        }
        if (!farewell_ends && Clock::now() >= next_beat) {
          beat();
          next_beat = Clock::now() + options_.period;
        }
        const bool alone = std::none_of(neighbours_.begin(), neighbours_.end(),
                                        [](const Neighbour& neighbour) { return static_cast<bool>(neighbour.socket); });
        if (farewell_ends && (alone || Clock::now() >= *farewell_ends)) return;
      }
      report_loss();
    }
  }

  // Only this thread closes sockets, so their descriptors stay valid while it waits without the lock.
  void wait_for_words(Clock::time_point until, bool until_leaving) {
    watched_.assign(1, {until_leaving ? wake_.fd() : -1, POLLIN, 0});
    for (const Neighbour& neighbour : neighbours_) watched_.push_back({neighbour.socket.fd(), POLLIN, 0});
    ::poll(watched_.data(), watched_.size(), tcp::poll_milliseconds(until));
  }

  void listen() {
    const Clock::time_point now = Clock::now();
    // A pause of our own (a stopped process, a suspended machine) does not count as silence of the others.
    const Clock::duration pause = now - last_pass_;
    const bool away = pause > 4 * options_.period;
    for (Neighbour& neighbour : neighbours_) {
      if (away) neighbour.last_heard += pause - options_.period;
      if (neighbour.socket) receive_words(neighbour, now);
    }
    last_pass_ = now;
  }

  void receive_words(Neighbour& neighbour, Clock::time_point now) {
    char buffer[4096];
    while (true) {
      const ssize_t count = ::recv(neighbour.socket.fd(), buffer, sizeof buffer, 0);
      if (count > 0) {
        neighbour.last_heard = now;
        neighbour.received.append(buffer, static_cast<std::size_t>(count));
        if (!understand(neighbour)) {
          neighbour.socket.close();
          if (!leaving_) note_loss({neighbour.rank, "it does not speak as a rank of weft does"}, rank_);
          return;
        }
        if (!neighbour.left) continue;
        neighbour.socket.close();  // it waits for our end of the connection
        return;
      }
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      const int error = count < 0 ? errno : 0;
      neighbour.socket.close();
      if (!neighbour.left && !leaving_) note_loss({neighbour.rank, how_it_closed(error)}, rank_);
      return;
    }
  }

  static std::string how_it_closed(int error) {
    if (error == 0 || error == ECONNRESET || error == EPIPE) return "its connection closed";
    return fmt::format("its connection broke: {}", tcp::error_text(error));
  }

  // Handles the complete messages that have arrived. Returns false where the bytes are not ours.
  bool understand(Neighbour& neighbour) {
    while (neighbour.received.size() >= sizeof(Word)) {
      Word word;
      std::memcpy(&word, neighbour.received.data(), sizeof word);
      const std::size_t length = word.length;
      if (std::max(word.rank, word.by) >= size_ || length > kMaxReasonBytes) return false;
      if (neighbour.received.size() < sizeof word + length) return true;
      const std::string reason = neighbour.received.substr(sizeof word, length);
      neighbour.received.erase(0, sizeof word + length);
      if (word.kind == WordKind::goodbye) neighbour.left = true;
      if (word.kind != WordKind::lost) continue;
      note_loss({static_cast<std::int64_t>(word.rank), reason}, word.by);
    }
    return true;
  }

  void beat() {
    const std::string bytes = bytes_of(WordKind::beat, rank_, rank_, "");
    for (Neighbour& neighbour : neighbours_) {
      if (neighbour.to_send.empty()) {
        say(neighbour, bytes);
      } else {
        flush(neighbour);
      }
    }
  }

  void say_goodbye() {
    for (Neighbour& neighbour : neighbours_) {
      say(neighbour, bytes_of(WordKind::goodbye, rank_, rank_, ""));
      if (neighbour.socket) ::shutdown(neighbour.socket.fd(), SHUT_WR);
    }
  }

  // Called under the lock. The news is sent here, before anybody can act on the loss and end because of it.
  void note_loss(const LostRank& loss, std::int64_t by) {
    if (lost_) return;
    lost_ = loss;
    lost_by_ = by;
    for (Neighbour& neighbour : neighbours_) {
      if (!neighbour.left) say(neighbour, bytes_of(WordKind::lost, loss.rank, by, loss.reason));
    }
  }

  // If others report that they lost this rank, this rank in turn has lost them.
  std::optional<LostRank> loss_for_us() const {
    if (!lost_ || lost_->rank != rank_) return lost_;
    if (lost_by_ == rank_) return std::nullopt;
    return LostRank{lost_by_, fmt::format("it gave up on rank {}: {}", rank_, lost_->reason)};
  }

  // Called without the lock, because the callback may call this object.
  void report_loss() {
    std::optional<LostRank> loss;
    {
      const std::lock_guard lock(mutex_);
      if (lost_ && !std::exchange(reported_, true)) loss = loss_for_us();
    }
    if (loss && options_.on_loss) options_.on_loss(*loss);
  }

  const Neighbour* find(std::int64_t rank) const {
    const auto found = std::find_if(neighbours_.begin(), neighbours_.end(),
                                    [&](const Neighbour& neighbour) { return neighbour.rank == rank; });
    return found == neighbours_.end() ? nullptr : &*found;
  }

  const std::int64_t rank_, size_;
  const LivenessOptions options_;
  tcp::Socket wake_;  // an eventfd
  std::atomic<bool> leaving_ = false;

  mutable std::mutex mutex_;
  std::vector<Neighbour> neighbours_;
  std::optional<LostRank> lost_;  // as all are told of it
  std::int64_t lost_by_ = -1;     // who noticed it
  bool reported_ = false;
  Clock::time_point last_pass_;

  std::vector<pollfd> watched_;  // of the thread
  std::thread thread_;
};

std::vector<std::int64_t> Liveness::neighbours(std::int64_t rank, std::int64_t size, std::int64_t mesh_limit) {
  if (size <= mesh_limit) return tcp::all_others(rank, size);
  std::set<std::int64_t> near;
  for (std::int64_t distance = 1; distance < size; distance *= 2) {
    near.insert((rank + distance) % size);
    near.insert((rank - distance + size) % size);
  }
  near.erase(rank);
  return {near.begin(), near.end()};
}

Liveness::Liveness(std::int64_t rank, std::int64_t size, const Exchange& exchange, LivenessOptions options)
    : rank_(rank) {
  if (size > 1) watch_ = std::make_unique<Watch>(rank, size, exchange, std::move(options));
}

Liveness::~Liveness() = default;

std::optional<LostRank> Liveness::lost() const {
  return watch_ ? watch_->lost() : std::nullopt;
}

std::chrono::nanoseconds Liveness::silence(std::int64_t rank) const {
  return watch_ ? watch_->silence(rank) : std::chrono::nanoseconds{};
}

bool Liveness::left(std::int64_t rank) const {
  return watch_ && watch_->left(rank);
}

void Liveness::declare_lost(const LostRank& cause) {
  if (watch_) watch_->declare_lost(cause);
}

}  // namespace weft
