#include "io/trace/device_trace_reader.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "base/error.hpp"
#include "io/timeline_json.hpp"
#include "io/trace/chrome_trace.hpp"

namespace weft {
namespace {

std::string name(const DeviceTrace& trace, std::int32_t number) {
  return trace.names.at(number);
}

DeviceTrace one(const std::string& text) {
  std::vector<DeviceTrace> traces = device_traces_of_bytes(text, "t.json");
  EXPECT_EQ(traces.size(), 1U);
  return std::move(traces.front());
}

std::string message_of(const std::string& text) {
  try {
    device_traces_of_bytes(text, "t.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Everything that a Kineto trace may say, once; "traceEvents" comes between other keys.
constexpr const char* kKineto = R"json({
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA A100", "totalGlobalMem": 42297524224, "computeMajor": 8,
                        "computeMinor": 0, "numSms": 108, "warpSize": 32}],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_count": 1,
                      "pg_config": [{"pg_name": "7", "pg_desc": "dp", "ranks": [1, 3, 5, 7]}]},
  "traceEvents": [
    {"ph": "M", "name": "process_name", "pid": 12, "tid": 0, "ts": 0, "args": {"name": "python"}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20.5, "dur": 4.25,
     "args": {"stream": 7, "device": 0, "correlation": 501, "grid": [1, 2, 3], "memory bandwidth (GB/s)": inf}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 12, "tid": 13, "ts": 10, "dur": 2,
     "args": {"correlation": 501, "External id": 9}},
    {"args": {"correlation": 502, "stream": "9", "Collective name": "_allgather_base", "In msg nelems": 10,
              "Out msg nelems": 40, "Group size": 4, "dtype": "BFloat16", "Process Group Name": "7",
              "Process Group Ranks": "[1, 3, ..., 7]", "Seq": 77},
     "name": "ncclDevKernel_AllGather_RING_LL", "cat": "kernel", "ph": "X", "dur": 1, "ts": 30, "tid": 9, "pid": 0},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "pid": 12, "tid": 13, "ts": 5, "dur": 50, "args": {}},
    {"ph": "X", "cat": "user_annotation", "name": "nccl:all_reduce", "pid": 12, "tid": 13, "ts": 39, "dur": 9,
     "args": {"Input Dims": [[8, 1024], [2]], "Input type": ["float", "float"]}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 12, "tid": 13, "ts": 40, "dur": 2,
     "args": {"correlation": 503}},
    {"ph": "X", "cat": "kernel", "name": "ncclKernel_AllReduce", "pid": 0, "tid": 9, "ts": 45, "dur": 1,
     "args": {"stream": 9, "correlation": 503}},
    {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 7, "ts": 44, "dur": 1,
     "args": {"cuda_sync_kind": "Stream Wait Event", "wait_on_stream": 9, "wait_on_cuda_event_record_corr_id": 501,
              "wait_on_cuda_event_id": 3, "stream": 7, "correlation": 503}},
    {"ph": "X", "cat": "python_function", "name": "f", "pid": 12, "tid": 13, "ts": 1, "dur": 90},
    {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 0, "dur": 99},
    {"ph": "s", "id": 501, "pid": 12, "tid": 13, "ts": 10, "cat": "ac2g", "name": "ac2g"},
    7, {}
  ],
  "baseTimeNanoseconds": 1712000000000000000,
  "displayTimeUnit": "ms", "traceName": "x"
})json";

TEST(DeviceTraceReader, KeepsWhatKinetoSays) {
  const DeviceTrace trace = one(kKineto);
  EXPECT_EQ(trace.rank.value, 3);
  EXPECT_EQ(trace.world_size, 8);
  EXPECT_EQ(trace.backend, "nccl");
  EXPECT_EQ(trace.base_time_ns, 1712000000000000000);
  EXPECT_EQ(trace.events, 13);  // objects in the list
  EXPECT_TRUE(trace.fractional);
  ASSERT_EQ(trace.devices.size(), 1U);
  EXPECT_EQ(trace.devices[0].name, "NVIDIA A100");
  EXPECT_EQ(trace.devices[0].multiprocessors, 108);
  EXPECT_EQ(trace.devices[0].memory.value, 42297524224);

  ASSERT_EQ(trace.device.size(), 3U);
  const DeviceActivity& gemm = trace.device[0];
  EXPECT_EQ(name(trace, gemm.name), "gemm");
  EXPECT_EQ(gemm.start.value, 20500);
  EXPECT_EQ(gemm.end.value, 24750);
  EXPECT_EQ(gemm.stream, 7);
  EXPECT_EQ(gemm.issued.value, 10000);
  EXPECT_EQ(gemm.step, 0);
  EXPECT_EQ(gemm.kind, KernelKind::computation);
  EXPECT_EQ(name(trace, trace.host[gemm.launch].name), "cudaLaunchKernel");

  const DeviceActivity& gather = trace.device[1];
  EXPECT_EQ(gather.kind, KernelKind::communication);
  EXPECT_EQ(gather.stream, 9);
  EXPECT_EQ(gather.launch, kAbsent);
  const CollectiveFacts& facts = trace.collectives.at(gather.collective);
  EXPECT_EQ(name(trace, facts.name), "_allgather_base");
  EXPECT_EQ(facts.in_elements, 10);
  EXPECT_EQ(facts.out_elements, 40);
  EXPECT_EQ(facts.element_bytes, 2);
  EXPECT_EQ(facts.group_size, 4);
  EXPECT_EQ(facts.sequence, 77);
  // The kernel's list of ranks is cut; the file says elsewhere who is in group "7".
  EXPECT_EQ(trace.rank_lists.at(facts.group_ranks), (std::vector<std::int32_t>{1, 3, 5, 7}));
}

TEST(DeviceTraceReader, FindsTheCollectiveOfAKernelThatSaysNothing) {
  const DeviceTrace trace = one(kKineto);
  const DeviceActivity& reduce = trace.device[2];
  ASSERT_NE(reduce.collective, kAbsent);  // from the annotation around its launch
  const CollectiveFacts& facts = trace.collectives.at(reduce.collective);
  EXPECT_EQ(name(trace, facts.name), "all_reduce");
  EXPECT_EQ(facts.in_elements, 8 * 1024 + 2);
  EXPECT_EQ(facts.element_bytes, 4);
}

TEST(DeviceTraceReader, LinksSynchronisationToCalls) {
  const DeviceTrace trace = one(kKineto);
  ASSERT_EQ(trace.syncs.size(), 1U);
  const SyncActivity& sync = trace.syncs[0];
  EXPECT_EQ(sync.kind, SyncKind::stream_wait_event);
  EXPECT_EQ(sync.stream, 7);
  EXPECT_TRUE(sync.names_stream);
  EXPECT_EQ(sync.wait_on_stream, 9);
  EXPECT_EQ(sync.event, 3);
  EXPECT_EQ(trace.host[sync.call].correlation, 503);
  EXPECT_EQ(trace.host[sync.record_call].correlation, 501);
}

TEST(DeviceTraceReader, TakesTheLargestStreamForTheHost) {
  const DeviceTrace trace = one(R"([{"ph":"X","cat":"cuda_sync","name":"Context Sync","ts":1,"dur":2,
    "args":{"stream":4294967295,"correlation":1,"wait_on_stream":-1}}])");
  ASSERT_EQ(trace.syncs.size(), 1U);
  EXPECT_EQ(trace.syncs[0].kind, SyncKind::context_sync);
  EXPECT_EQ(trace.syncs[0].stream, -1);
  EXPECT_TRUE(trace.syncs[0].names_stream);
}

TEST(DeviceTraceReader, TakesABareListEvenUnclosed) {
  const std::string event =
      R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2,"args":{"stream":7}})";
  EXPECT_EQ(one("[" + event + "]").device.size(), 1U);
  const DeviceTrace open = one("[" + event + "\n");
  EXPECT_EQ(open.device.size(), 1U);
  EXPECT_EQ(open.warnings.front(), "the list of events is not closed: the trace may be cut off");
}

TEST(DeviceTraceReader, SaysWhatIsOdd) {
  const DeviceTrace trace = one(R"({"traceEvents": [
    {"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":100,"dur":-5,"args":{"stream":7,"correlation":1}},
    {"ph":"X","cat":"kernel","name":"b","pid":0,"tid":7,"ts":3,"args":{"stream":7}},
    {"ph":"X","cat":"kernel","name":"c","pid":0,"tid":7,"dur":3,"args":{"stream":7}},
    {"ph":"X","cat":"kernel","name":"d","pid":0,"tid":6,"ts":3,"dur":3},
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":0,"dur":50},
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#2","pid":1,"tid":1,"ts":40,"dur":50}]})");
  EXPECT_EQ(trace.warnings, (std::vector<std::string>{
                                "1 events have no 'ts' and are left out", "1 events have no 'dur' and are left out",
                                "1 events have a negative duration; they count as 0 long",
                                "1 device activities do not name their stream; the thread's number is taken",
                                "2 of 2 device activities have no launch in the trace", "steps 1 and 2 overlap"}));
  EXPECT_EQ(trace.device[0].stream, 6);
  EXPECT_EQ(trace.device[1].duration().value, 0);
}

TEST(DeviceTraceReader, KnowsTheCategoriesOfOldProfilers) {
  const DeviceTrace trace = one(R"([
    {"ph":"X","cat":"Operator","name":"ProfilerStep#3","pid":1,"tid":1,"ts":0,"dur":50},
    {"ph":"X","cat":"Runtime","name":"cudaMemcpyAsync","pid":1,"tid":1,"ts":5,"dur":2,"args":{"correlation":8}},
    {"ph":"X","cat":"Memcpy","name":"Memcpy HtoD","pid":0,"tid":7,"ts":9,"dur":3,"args":{"stream":7,"correlation":8}},
    {"ph":"X","cat":"Kernel","name":"gemm","pid":0,"tid":7,"ts":19,"dur":3,"args":{"stream":7,"correlation":9}}])");
  ASSERT_EQ(trace.steps.size(), 1U);
  EXPECT_EQ(trace.steps[0].number, 3);
  ASSERT_EQ(trace.device.size(), 2U);
  EXPECT_EQ(trace.device[0].kind, KernelKind::memory);
  EXPECT_EQ(trace.device[0].issued.value, 5000);
  EXPECT_EQ(trace.host.at(trace.device[0].launch).call, HostCall::launch);
}

TEST(DeviceTraceReader, RefusesWhatIsNoTrace) {
  EXPECT_EQ(message_of(""), "t.json: the file is empty");
  EXPECT_EQ(message_of("  \n"), "t.json: the file is empty");
  EXPECT_EQ(message_of("hello"),
            "t.json: at byte 0: a trace is a JSON object or a list of events, and this is neither");
  EXPECT_EQ(message_of("{\"model\": 1}"), "t.json: it has no key 'traceEvents': it is no trace");
  EXPECT_EQ(message_of("{\"traceEvents\": []}"), "t.json: it has no trace events");
  EXPECT_EQ(message_of("{\"traceEvents\": 3}"), "t.json: at byte 16: expected '['");
  EXPECT_EQ(message_of("{\"traceEvents\": [{\"ts\": \"soon\"}]}"),
            "t.json: at byte 30: 'ts' is 'soon', which is no time within 73 years");
  EXPECT_EQ(message_of("{\"traceEvents\": [{\"ts\": 1"), "t.json: at byte 25: the file ends inside an object");
  EXPECT_EQ(message_of("{\"traceEvents\": [{}]} x"), "t.json: at byte 22: something follows the end of the JSON value");
}

TEST(DeviceTraceReader, TakesTheRankFromTheFileNameWhereTheTraceIsSilent) {
  const std::string text = R"([{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":2,"args":{"stream":7}}])";
  EXPECT_EQ(device_traces_of_bytes(text, "run/rank-12.json").front().rank.value, 12);
  EXPECT_EQ(device_traces_of_bytes(text, "trace_rank7.pt.json").front().rank.value, 7);
  EXPECT_FALSE(device_traces_of_bytes(text, "trace.json").front().rank.valid());
}

// Two ranks, two iterations; a gradient's transfer beside compute.
Timeline small_timeline() {
  Timeline t;
  t.names = {"layer", "forward", "grads", "dp", "all_reduce"};
  for (int rank = 0; rank < 2; ++rank) {
    t.ranks.push_back({"rank " + std::to_string(rank), Rank{rank}, 1, {"compute", "comm"}});
    t.operations.push_back(
        {0, -1, rank, 0, Activity::compute, TrafficKind::other, 1, -1, Bytes{}, Nanos{100}, -1, false});
    t.operations.push_back(
        {2, -1, rank, 1, Activity::transfer, TrafficKind::dp_grad, 1, 3, Bytes{4096}, Nanos{50}, 5, false, 4, 8});
  }
  t.dependency_begin = {0, 0, 1, 1, 2};
  t.dependencies = {{0, 0, false, false}, {2, 0, false, false}};
  for (int iteration = 0; iteration < 2; ++iteration) {
    for (int op = 0; op < 4; ++op) {
      const std::int64_t begin = 1000 * iteration + (op % 2 == 0 ? 0 : 100) + 7;
      t.spans.push_back(
          {op, iteration, Nanos{begin - 3}, Nanos{begin}, Nanos{begin}, Nanos{begin + (op % 2 == 0 ? 100 : 50)}});
    }
  }
  t.period_ns = 1000;
  t.periods = 1;
  return t;
}

void expect_small_timeline(const std::vector<DeviceTrace>& traces) {
  ASSERT_EQ(traces.size(), 2U);
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    const DeviceTrace& trace = traces[rank];
    EXPECT_EQ(trace.source, TraceSource::weft);
    EXPECT_EQ(trace.rank.value, rank);
    ASSERT_EQ(trace.device.size(), 4U);
    ASSERT_EQ(trace.steps.size(), 2U);
    EXPECT_EQ(trace.steps[1].start.value - trace.steps[0].start.value, 1000);
    EXPECT_EQ(trace.device[1].step, 0);
    EXPECT_EQ(trace.device[2].step, 1);
    const DeviceActivity& grads = trace.device[1];
    EXPECT_EQ(name(trace, grads.name), "grads");
    EXPECT_EQ(grads.kind, KernelKind::communication);
    EXPECT_EQ(grads.duration().value, 50);
    EXPECT_EQ((grads.start - grads.issued).value, 3);
    EXPECT_EQ(grads.ready, grads.start);
    EXPECT_EQ(trace.step_time.value, 1000);
    EXPECT_EQ(grads.bytes, 4096);
    const CollectiveFacts& facts = trace.collectives.at(grads.collective);
    EXPECT_EQ(name(trace, facts.name), "all_reduce");
    EXPECT_EQ(name(trace, facts.group_name), "dp");
    EXPECT_EQ(facts.group_size, 8);
    EXPECT_EQ(facts.sequence, 5);
  }
}

TEST(DeviceTraceReader, ReadsTheChromeTracesThatWeftWrites) {
  const Timeline timeline = small_timeline();
  std::ostringstream out;
  write_chrome_trace(out, timeline, account(timeline));
  const std::vector<DeviceTrace> traces = device_traces_of_bytes(out.str(), "own.json");
  expect_small_timeline(traces);
  // The transfer waited for the layer, in both iterations; arrows from other ranks are not of one rank.
  EXPECT_EQ(traces[0].dependencies, (std::vector<DeviceDependency>{{0, 1}, {2, 3}}));
}

TEST(DeviceTraceReader, ReadsTimelineFiles) {
  std::ostringstream out;
  write_timeline_json(out, {small_timeline(), {}});
  const std::vector<DeviceTrace> traces = device_traces_of_bytes(out.str(), "own.json");
  expect_small_timeline(traces);
  EXPECT_EQ(traces[1].dependencies, (std::vector<DeviceDependency>{{0, 1}, {2, 3}}));
}

// Files of older versions say only what a transfer is for.
TEST(DeviceTraceReader, ATransferWithoutACollectiveIsCalledByItsTraffic) {
  Timeline timeline = small_timeline();
  for (TimelineOperation& operation : timeline.operations) operation.collective = -1;
  std::ostringstream trace, file;
  write_chrome_trace(trace, timeline, account(timeline));
  write_timeline_json(file, {timeline, {}});
  for (const std::string& text : {trace.str(), file.str()}) {
    const DeviceTrace first = device_traces_of_bytes(text, "own.json").front();
    EXPECT_EQ(name(first, first.collectives.front().name), "dp_grad");
  }
}

TEST(DeviceTraceReader, KeepsPredictedAndMeasuredApart) {
  const Timeline timeline = small_timeline();
  const Accounting accounting = account(timeline);
  std::vector<TracePart> parts(2);
  for (TracePart& part : parts) {
    part.timeline = &timeline;
    part.accounting = &accounting;
  }
  parts[0].label = "predicted";
  parts[1].label = "measured";
  std::ostringstream out;
  write_chrome_traces(out, parts);
  const std::vector<DeviceTrace> traces = device_traces_of_bytes(out.str(), "both.json");
  ASSERT_EQ(traces.size(), 4U);
  EXPECT_EQ(traces[1].label, "predicted");
  EXPECT_EQ(traces[1].rank.value, 1);
  EXPECT_EQ(traces[2].label, "measured");
  EXPECT_EQ(traces[2].rank.value, 0);
}

}  // namespace
}  // namespace weft
