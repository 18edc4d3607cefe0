#include "kernels/cuda/recorder.hpp"

namespace weft::cuda {

void Recorder::set_recording(RecordedData* data) {
  is_recording_ = data != nullptr;
  context_.use_recorded(data);
  context_.results().set_recording(is_recording_);
}

// Other threads may call CUDA meanwhile, and libraries may take memory: nothing of that can spoil a capture of streams
// that are ours alone.
void Recorder::begin(std::span<const StreamId> streams) {
  context_.enter();
  streams_.assign(streams.begin(), streams.end());
  recorded_.assign(recorded_.size(), false);
  while (joins_.size() < streams.size()) joins_.emplace_back(cudaEventDisableTiming);
  recordings_.emplace_back();
  const cudaStream_t first = context_.stream(streams_.front()).get();
  check(cudaStreamBeginCapture(first, cudaStreamCaptureModeRelaxed), "beginning to record calls");
  set_recording(&recordings_.back().data);
  check(cudaEventRecord(joins_.front().get(), first), "recording an event");
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    check(cudaStreamWaitEvent(context_.stream(streams_[i]).get(), joins_.front().get()), "waiting for an event");
  }
}

cudaGraph_t Recorder::end_capture() {
  const cudaStream_t first = context_.stream(streams_.front()).get();
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    check(cudaEventRecord(joins_[i].get(), context_.stream(streams_[i]).get()), "recording an event");
    check(cudaStreamWaitEvent(first, joins_[i].get()), "waiting for an event");
  }
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(first, &graph), "recording calls");
  return graph;
}

// Streams for communication have a higher priority; without the flag all of a graph would have that of the stream that
// it is started in.
RecordingId Recorder::end() {
  context_.enter();
  cudaGraph_t calls = end_capture();
  set_recording(nullptr);
  cudaGraphExec_t graph = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&graph, calls, cudaGraphInstantiateFlagUseNodePriority);
  cudaGraphDestroy(calls);
  check(status, "making a graph of recorded calls");
  recordings_.back().graph.reset(graph);
  return make_id<RecordingId>(recordings_.size() - 1);
}

void Recorder::abandon() {
  if (!is_recording_) return;
  set_recording(nullptr);
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(context_.stream(streams_.front()).get(), &graph) == cudaSuccess) cudaGraphDestroy(graph);
  cudaGetLastError();  // whoever abandons a recording knows why
}

void Recorder::renew_host_data(RecordingId recording) {
  RecordedData& data = recordings_[recording.index()].data;
  data.begin_renewal();
  context_.use_recorded(&data);
}

void Recorder::start(RecordingId id, StreamId stream) {
  context_.enter();
  context_.use_recorded(nullptr);
  Recording& recording = recordings_[id.index()];
  const cudaStream_t in = context_.stream(stream).get();
  recording.data.copy_to_device(in);
  check(cudaGraphLaunch(recording.graph.get(), in), "starting recorded calls");
}

void Recorder::record(cudaEvent_t event, std::size_t id, cudaStream_t stream) {
  if (recorded_.size() <= id) recorded_.resize(id + 1);
  while (edges_.size() <= id) edges_.emplace_back(cudaEventDisableTiming);
  check(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal), "recording an event");
  check(cudaEventRecord(edges_[id].get(), stream), "recording an event");
  recorded_[id] = true;
}

void Recorder::wait(cudaStream_t stream, cudaEvent_t event, std::size_t id) {
  const bool is_inside = id < recorded_.size() && recorded_[id];
  check(is_inside ? cudaStreamWaitEvent(stream, edges_[id].get())
                  : cudaStreamWaitEvent(stream, event, cudaEventWaitExternal),
        "waiting for an event");
}

}  // namespace weft::cuda
