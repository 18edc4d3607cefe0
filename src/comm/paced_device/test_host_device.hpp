// A device in the memory of the host: the thread of a rank is the first of its thread blocks, and waits where a kernel
// would.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "comm/paced_device/paced_body.hpp"
#include "comm/paced_device/paced_device.hpp"
#include "comm/reduce_kernels.hpp"

namespace weft::paced {

// One thread. The time is over when the data has moved.
class HostBlock {
 public:
  HostBlock(const PacedLaunch& launch, int index) : launch_(launch), index_(index) {}

  int index() const { return index_; }
  int thread() const { return 0; }
  int threads() const { return 1; }
  std::int64_t thread_of_all() const { return index_; }
  std::int64_t all_threads() const { return launch_.blocks; }
  const std::byte** sources() { return sources_; }
  void sync() const {}
  template <class Group>
  Group load(const Group* place) const {
    return *place;
  }

  bool meet(std::uint64_t arrived) {
    count(1);
    if (!wait_for(arrived)) return false;
    const bool sees_to_time = launch_.is_paced && launch_.self == 0 && index_ == 0;
    if (sees_to_time && arrived == launch_.arrived + launch_.arrivals_before_last_meeting()) count(1);
    return true;
  }

 private:
  void count(std::uint64_t arrivals) const { std::atomic_ref(launch_.group->arrived).fetch_add(arrivals); }
  bool wait_for(std::uint64_t arrived) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(launch_.longest_wait);
    while (std::atomic_ref(launch_.group->arrived).load() < arrived) {
      if (std::atomic_ref(launch_.signals->aborted).load() != 0) return false;
      if (std::chrono::steady_clock::now() > end) {
        std::atomic_ref(launch_.signals->late_group).store(launch_.group_number + 1);
        std::atomic_ref(launch_.signals->aborted).store(1);
        return false;
      }
      std::this_thread::yield();
    }
    return true;
  }

  const PacedLaunch& launch_;
  int index_;
  const std::byte* sources_[kMaxPacedRanks] = {};
};

class HostDevice final : public PacedDevice {
 public:
  using OnLaunch = std::function<void(const PacedLaunch&)>;
  explicit HostDevice(OnLaunch on_launch = {}) : on_launch_(std::move(on_launch)) {}

  std::shared_ptr<std::byte> share(std::int64_t bytes) override {
    const auto words = static_cast<std::size_t>((bytes + 7) / 8);
    const std::shared_ptr<std::uint64_t[]> memory(new std::uint64_t[words]());
    return {memory, reinterpret_cast<std::byte*>(memory.get())};
  }
  std::shared_ptr<std::byte> share_with_host(std::int64_t bytes) override { return share(bytes); }

  std::byte* allocate(std::int64_t bytes) override {
    return memory_.emplace_back(std::vector<std::byte>(static_cast<std::size_t>(bytes))).data();
  }
  void copy(std::span<const DeviceCopy> copies, void*) override {
    for (const DeviceCopy& c : copies) std::memcpy(c.to, c.from, static_cast<std::size_t>(c.bytes));
  }
  void reduce(const DeviceReduction& how, std::span<const DeviceSum> sums, void*) override {
    for (const DeviceSum& s : sums) {
      reduce_into(how.type, how.op, s.to, s.left, s.right, s.bytes / size_of(how.type).value,
                  1.0 / static_cast<double>(how.divisor));
    }
  }
  void launch(const PacedLaunch& launch, void*) override {
    if (on_launch_) on_launch_(launch);
    std::vector<std::thread> others;
    for (int index = 1; index < launch.blocks; ++index) others.emplace_back([&, index] { run_block(launch, index); });
    run_block(launch, 0);
    for (std::thread& other : others) other.join();
  }

 private:
  static void run_block(const PacedLaunch& launch, int index) {
    HostBlock block(launch, index);
    if (launch.type == ElementType::fp32) carry_out<float>(block, launch);
    if (launch.type == ElementType::bf16) carry_out<Bf16>(block, launch);
    if (launch.type == ElementType::i32) carry_out<std::int32_t>(block, launch);
    if (launch.type == ElementType::i64) carry_out<std::int64_t>(block, launch);
    if (launch.type == ElementType::u8) carry_out<std::uint8_t>(block, launch);
  }

  OnLaunch on_launch_;
  std::deque<std::vector<std::byte>> memory_;
};

}  // namespace weft::paced
