#include "comm/communicator.hpp"

#include "comm/communication_thread.hpp"
#include "comm/prepared_run.hpp"

namespace weft {

Communicator::Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options)
    : thread_(std::make_unique<CommunicationThread>(std::move(transport), std::move(options))) {}

Communicator::~Communicator() = default;

std::int64_t Communicator::rank() const {
  return thread_->transport().rank();
}

std::int64_t Communicator::size() const {
  return thread_->transport().size();
}

std::chrono::nanoseconds Communicator::timeout() const {
  return thread_->options().timeout;
}

bool Communicator::through_memory() const {
  return thread_->features().through_memory;
}

bool Communicator::has_library() const {
  return thread_->features().library != nullptr;
}

Communicator::Prepared& Communicator::prepare(PreparedCall call) {
  return thread_->prepare(std::move(call));
}

void Communicator::release(Prepared& prepared) {
  thread_->release(prepared);
}

Communicator::Handle Communicator::start(Prepared& prepared, const void* input, void* output) {
  const bool in_place = prepared.call.program != nullptr && prepared.call.program->in_place;
  const Segment from{static_cast<std::byte*>(const_cast<void*>(input)), prepared.input_bytes};
  const Segment to{static_cast<std::byte*>(output), prepared.output_bytes};
  return thread_->start(prepared, {&from, in_place ? 0U : 1U}, {&to, 1});
}

Communicator::Handle Communicator::start(Prepared& prepared, std::span<const Segment> input,
                                         std::span<const Segment> output) {
  const bool in_place = prepared.call.program != nullptr && prepared.call.program->in_place;
  return thread_->start(prepared, in_place ? std::span<const Segment>{} : input, output);
}

bool Communicator::done(Handle handle) {
  return thread_->done(handle);
}

void Communicator::wait(Handle handle) {
  thread_->wait(handle);
}

void Communicator::require_alive() {
  thread_->require_alive();
}

void Communicator::fail(const std::string& why) {
  thread_->fail(why);
}

Whereabouts& Communicator::whereabouts() {
  return thread_->whereabouts();
}

}  // namespace weft
