// An accelerator: a processor with memory of its own, which carries out kernels in streams while the host goes on. A
// rank has one object of it, which one thread at a time may call.
//
// Work of one stream runs in the order in which it was given; work of two streams runs in any order, except where an
// event that one recorded is waited for by the other. What a device cannot do any more (an error that it reports later
// than the call that caused it) is thrown as RunFailed by whatever call comes next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "kernels/call_recorder.hpp"
#include "kernels/kernels.hpp"

namespace weft {

using EventId = Id<struct EventTag>;

enum class StreamPriority : std::uint8_t { usual, high };  // high: its work goes first where both could start

// Results for the host (Kernels: a loss, whether something is finite), numbered as they were asked for.
struct ResultRange {
  std::uint64_t begin = 0, end = 0;
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;

  // Its kernels work in the stream that use() named last, on memory of this device. Results that a call names are
  // there after deliver() or synchronize(). Host memory that a call reads (tokens, say) may change when it returns.
  virtual Kernels& kernels() = 0;
  virtual void use(StreamId stream) = 0;

  // Zeros. Freed with the device, or by release(), which waits for all work of the device
  // and throws nothing.
  virtual std::byte* allocate(Bytes size) = 0;
  virtual void release(std::byte* memory) = 0;
  // Both wait for all work of the device before they copy, and for the copy.
  virtual void copy_in(std::span<const std::byte> host, std::byte* device) = 0;
  virtual void copy_out(const std::byte* device, std::span<std::byte> host) = 0;
  // Sets bytes to zero, in the stream.
  virtual void clear(StreamId stream, std::byte* device, Bytes size) = 0;

  virtual StreamId make_stream(StreamPriority priority) = 0;
  virtual EventId make_event() = 0;
  virtual void record(EventId event, StreamId stream) = 0;
  virtual void wait(StreamId stream, EventId event) = 0;  // as it was recorded last
  // Whether all that stood before it in its stream has ended.
  virtual bool is_over(EventId event) = 0;
  // When that was, in nanoseconds of the host's steady clock. It must be over.
  virtual std::int64_t time_of(EventId event) = 0;

  virtual std::uint64_t results_asked_for() const = 0;
  // Writes results to where the caller wanted them. The work that makes them must be over.
  virtual void deliver(ResultRange results) = 0;

  // Null where calls cannot be recorded.
  virtual CallRecorder* recorder() = 0;

  // What a library for this kind of device calls a stream (a cudaStream_t).
  virtual void* native(StreamId stream) = 0;
  virtual std::string in_words() const = 0;  // "NVIDIA H200, 132 SMs"
};

// One of several equal parts of a GPU's SMs. Kernels of different parts run side by side, whatever they wait for.
struct SmShare {
  int number = 0, parts = 1;
};

// The processors of this machine that kernels can be made for.
struct AcceleratorOptions {
  int number = 0;                     // of several in this machine
  std::optional<SmShare> share = {};  // none: all SMs
};
// Throws Error where there is none, or it cannot be used: no driver, one that is too old, a build without CUDA.
std::unique_ptr<Accelerator> make_cuda_accelerator(const AcceleratorOptions& options = {});

}  // namespace weft
