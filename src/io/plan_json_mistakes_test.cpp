// Every mistake in a plan file is named: the file, the place in it, the value and what is allowed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "io/test_plan_files.hpp"
#include "plan/verify/verify_plan.hpp"

namespace weft {
namespace {

using nlohmann::json;
using test::plan_of;
using test::text_of;

struct Mistake {
  const char* name;
  const char* pointer;  // what is replaced (or added) in the file
  const char* value;
  const char* message;
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

std::string message_of(const std::string& text) {
  try {
    read_plan_json(text, "plan.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class PlanFileMistake : public testing::TestWithParam<Mistake> {};

TEST_P(PlanFileMistake, IsNamed) {
  // Operation 0 looks up the embedding; value 0 is its weight. Two classes, two micro-batches.
  json file =
      json::parse(text_of(plan_of({"", "gpt2", 2, "local:2", Layout{.pp = 2, .precision = ElementType::fp32}, 2})));
  file[json::json_pointer(GetParam().pointer)] = json::parse(GetParam().value);
  EXPECT_NE(message_of(file.dump()).find(GetParam().message), std::string::npos)
      << message_of(file.dump()) << "\nwas to contain\n"
      << GetParam().message;
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, PlanFileMistake,
    testing::Values(
        Mistake{"version", "/weft_plan", "3", "plan.json: key 'weft_plan': version 3 of the plan format is not 2"},
        Mistake{
            "old_version", "/weft_plan", "1",
            "version 1 of the plan format is not 2, the only one that this weft reads; make the plan anew with 'weft "
            "plan ... --out DIR'"},
        Mistake{"version_is_text", "/weft_plan", "\"1\"", "key 'weft_plan': value \"1\" is not an integer"},
        Mistake{"no_version", "", R"({"policy": "serial"})", "key 'weft_plan' is missing"},
        Mistake{"no_object", "", "[1, 2]", "plan.json: value [1,2] is not an object"},
        Mistake{"unknown_key", "/operation", "[]", "key 'operation' is not known; did you mean 'operations'?"},
        Mistake{"model_is_null", "/model", "null", "plan.json: key 'model'"},
        Mistake{"model_key", "/model/hiden", "8", "plan.json: model: key 'hiden' is not known; did you mean 'hidden'?"},
        Mistake{"model_rule", "/model/kv_heads", "5", "plan.json: model: model 'gpt2': kv_heads: value 5"},
        Mistake{"experts", "/model/experts", R"({"count": 4, "top_k": 5, "ffn": 8})",
                "experts.top_k: value 5 is not in 1..4"},
        Mistake{"too_many_layers", "/model/layers", "10001", "layers: value 10001 is not in 1..10000"},
        Mistake{"layers_without_operations", "/model/layers", "9000", "are too few for 9000 layers"},
        Mistake{"cluster", "/cluster/nodes", "0", "plan.json: cluster: key 'nodes': value 0 is not"},
        Mistake{"too_many_devices", "/cluster/devices_per_node", "1000000",
                "2000000 devices, at most 1048576 are allowed"},
        Mistake{"layout_name", "/layout/schedule", "\"1f1\"",
                "plan.json: layout: key 'schedule': value '1f1' is not known; did you mean '1f1b'?"},
        Mistake{"layout_key", "/layout/microbatch", "1", "key 'microbatch' is not known; did you mean 'micro_batch'?"},
        Mistake{"layout_does_not_fit", "/layout/tp", "2", "= 4 ranks, but the cluster has 2 devices"},
        Mistake{"mesh_order", "/layout/mesh_order", "\"tp,cp,dp\"", "'tp,cp,dp': pp is missing"},
        Mistake{"micro_batches", "/micro_batches", "3",
                "key 'micro_batches': value 3 is not 2, which follows from the layout"},
        Mistake{"too_many_micro_batches", "/layout/global_batch", "1000000000",
                "plan.json: layout: --global-batch 1000000000: makes 1000000000 micro-batches"},
        Mistake{"class_missing", "/classes", "[]", "key 'classes': 0 are listed, but model, cluster and layout make 2"},
        Mistake{"class_name", "/classes/1/name", "\"stage 2\"",
                "plan.json: classes[1]: key 'name': value \"stage 2\" is not 'stage 1'"},
        Mistake{"class_ranks", "/classes/0/ranks", "7", "classes[0]: key 'ranks': value 7 is not '1'"},
        Mistake{"class_representative", "/classes/1/representative", "0", "key 'representative': value 0 is not '1'"},
        Mistake{"class_stage", "/classes/1/stage", "0", "key 'stage': value 0 is not '1'"},
        Mistake{"class_device", "/classes/1/device", "\"h100\"", "key 'device': value \"h100\" is not 'cpu'"},
        Mistake{"class_memory", "/classes/0/memory_bytes", "-1",
                "classes[0]: key 'memory_bytes': value -1 is not an integer in 0.."},
        Mistake{"no_queue", "/classes/0/queues", "[]", "key 'queues': value [] is not an array of 1 to 256 queues"},
        Mistake{"queue_0", "/classes/0/queues/0/kind", "\"extra\"",
                "classes[0]: queues[0]: key 'kind': value \"extra\" is not 'compute'"},
        Mistake{"second_compute_queue", "/classes/0/queues/1/kind", "\"compute\"", "only queue 0 is 'compute'"},
        Mistake{"queue_kind", "/classes/0/queues/1/kind", "\"comunication\"", "did you mean 'communication'?"},
        Mistake{"block_key", "/classes/0/blocks/1/ops", "[]", "classes[0]: blocks[1]: key 'ops' is not known"},
        Mistake{"block_name", "/classes/0/blocks/1/name", "\"backward 0\"", "blocks[1]: key 'name' is not known"},
        Mistake{"block_kind", "/classes/0/blocks/1/kind", "\"forwards\"",
                "blocks[1]: key 'kind': value 'forwards' is not known; did you mean 'forward'?"},
        Mistake{"block_chunk", "/classes/0/blocks/1/chunk", "1", "blocks[1]: key 'chunk': value 1 is not"},
        Mistake{"block_operation", "/classes/0/blocks/1/operations/2", "100000",
                "blocks[1]: key 'operations'[2]: value 100000 is not an integer in 0.."},
        Mistake{"slot_block", "/classes/0/order/1", "[3, 0]",
                "classes[0]: key 'order'[1]: block 3 is not an integer in 0..2"},
        Mistake{"slot_micro_batch", "/classes/0/order/1/1", "2",
                "key 'order'[1]: micro-batch 2 is not an integer in -1..1"},
        Mistake{"slot_shape", "/classes/0/order/1", "[1, 1, 1]",
                "key 'order'[1]: an array of 3 is not [block, micro-batch]"},
        Mistake{"slot_type", "/classes/0/order/1", "\"x\"", "key 'order'[1]: a string is not [block, micro-batch]"},
        Mistake{"order_is_missing", "/classes/0/order", "null", "key 'order': value null is not an array"},
        Mistake{"value_id", "/values/3/id", "4",
                "plan.json: values[3]: key 'id': value 4 is not 3, its place in the list"},
        Mistake{"value_class", "/values/3/class", "2", "values[3]: key 'class': value 2 is not an integer in 0..1"},
        Mistake{"value_kind", "/values/3/kind", "\"paramter\"",
                "values[3]: key 'kind': value 'paramter' is not known; did you mean 'parameter'?"},
        Mistake{"value_dtype", "/values/3/dtype", "16", "values[3]: key 'dtype': value 16 is not a string"},
        Mistake{"negative_shape", "/values/3/shape", "[2, -1]",
                "values[3]: key 'shape'[1]: value -1 is not an integer in 0.."},
        Mistake{"long_shape", "/values/3/shape", "[1, 1, 1, 1, 1, 1, 1, 1, 1]",
                "is not an array of at most 8 dimensions"},
        Mistake{"overflowing_shape", "/values/3/shape", "[1000000000000, 1000000000000]",
                "values[3]: key 'shape': the size does not fit"},
        Mistake{"split_dimension", "/values/3/splits", R"([["tp", 9, "blocks"]])",
                "values[3]: key 'splits'[0]: this is not [the name of an axis, a dimension"},
        Mistake{"split_axis", "/values/0/splits", R"([["etpp", 0, "blocks"]])",
                "values[0]: key 'splits'[0]: axis 'etpp' is not known; did you mean 'etp'?"},
        Mistake{"width", "/values/3/bytes_per_element", "1e9",
                "key 'bytes_per_element': value 1000000000.0 is not a number in 0..1024"},
        Mistake{"offset", "/values/3/offset", "-256", "values[3]: key 'offset': value -256 is not an integer in 0.."},
        Mistake{"copies", "/values/3/copies", "3", "values[3]: key 'copies': value 3 is not an integer in 1..2"},
        Mistake{"value_key", "/values/3/ofset", "0", "values[3]: key 'ofset' is not known; did you mean 'offset'?"},
        Mistake{"operation_id", "/operations/12/id", "11", "plan.json: operations[12]: key 'id': value 11 is not 12"},
        Mistake{"operation_is_number", "/operations/12", "5", "operations[12]: value 5 is not an object"},
        Mistake{"role", "/operations/12/role", "\"qkw\"",
                "plan.json: operations[12]: key 'role': value 'qkw' is not known; did you mean 'qkv'?"},
        Mistake{"subject", "/operations/12/subject", "\"qkw\"",
                "operations[12]: key 'subject': value 'qkw' is not known"},
        Mistake{"phase", "/operations/12/phase", "\"backward\"",
                "operations[12]: key 'phase': value 'backward' is not known"},
        Mistake{"operation_class", "/operations/12/class", "-1",
                "operations[12]: key 'class': value -1 is not an integer in 0..1"},
        Mistake{"chunk", "/operations/12/chunk", "1", "operations[12]: key 'chunk': value 1 is not an integer in 0..0"},
        Mistake{"layer", "/operations/12/layer", "2",
                "operations[12]: key 'layer': value 2 is not an integer in -1..1"},
        Mistake{"part", "/operations/12/part", "4294967296",
                "key 'part': value 4294967296 is not an integer in 0..2147483647"},
        Mistake{"repetition", "/operations/12/per_micro_batch", "1",
                "key 'per_micro_batch': value 1 is not true or false"},
        Mistake{"seven_dims", "/operations/12/dims", "[1, 1, 1, 1, 1, 1, 1]",
                "key 'dims': value [1,1,1,1,1,1,1] is not an array of at most 6"},
        Mistake{"huge_dims", "/operations/12/dims", "[18446744073709551615]",
                "key 'dims'[0]: value 18446744073709551615 is not an integer in 0.."},
        Mistake{"reads_value", "/operations/12/reads", R"([["input", 100000, 0]])",
                "operations[12]: key 'reads'[0]: value 100000 is not an integer in 0.."},
        Mistake{"reads_distance", "/operations/12/reads", R"([["input", 1, 2]])",
                "operations[12]: key 'reads'[0]: distance 2 is not an integer in 0..1"},
        Mistake{"reads_shape", "/operations/12/reads", "[[1, 0]]",
                "operations[12]: key 'reads'[0]: this is not [operand, value, distance]"},
        Mistake{"reads_name", "/operations/12/reads", R"([["inputs", 1, 0]])",
                "operations[12]: key 'reads'[0]: operand 'inputs' is not known; did you mean 'input'?"},
        Mistake{"writes", "/operations/12/writes", R"([["output", -1]])",
                "operations[12]: key 'writes'[0]: value -1 is not an integer in 0.."},
        Mistake{"origin", "/operations/12/origins", "[[100000, 0, 0, 1, 1]]",
                "key 'origins'[0]: operation of the model's graph 100000 is not"},
        Mistake{"origin_range", "/operations/12/origins", "[[12, 0, 2, 2, 4]]",
                "key 'origins'[0]: begin 2, end 2 of 4 is no range"},
        Mistake{"origin_beyond", "/operations/12/origins", "[[12, 0, 2, 5, 4]]",
                "key 'origins'[0]: begin 2, end 5 of 4 is no range"},
        Mistake{"queue", "/operations/12/queue", "9", "operations[12]: key 'queue': value 9 is not an integer in 0.."},
        Mistake{"blocking", "/operations/12/blocking", "\"yes\"", "key 'blocking': value \"yes\" is not true or false"},
        Mistake{"needs_communication", "/operations/0/kind", "\"transfer\"",
                "operations[0]: kind 'transfer' needs a key 'communication'"},
        Mistake{"has_no_communication", "/operations/0/communication",
                R"({"collective": "all_reduce", "algorithm": "ring", "group": "dp", "bytes": 4})",
                "does not have a key 'communication'"},
        Mistake{"collective", "/operations/0/communication", R"({"collective": "allreduce"})",
                "operations[0]: communication: key 'collective': value 'allreduce' is not known; did you mean "
                "'all_reduce'?"},
        Mistake{"algorithm", "/operations/0/communication",
                R"({"collective": "all_reduce", "algorithm": "rings", "group": "dp", "bytes": 4})",
                "communication: key 'algorithm': value 'rings' is not known; did you mean 'ring'?"},
        Mistake{"algorithm_of_another_collective", "/operations/0/communication",
                R"({"collective": "all_to_all", "algorithm": "ring", "group": "dp", "bytes": 4})",
                "operations[0]: communication: there is no all_to_all that is a ring; allowed are direct, bruck"},
        Mistake{"no_parts", "/operations/0/communication",
                R"({"collective": "all_reduce", "algorithm": "ring", "parts": 0, "group": "dp", "bytes": 4})",
                "operations[0]: communication: key 'parts': value 0 is not an integer in 1..32"},
        Mistake{"parts_of_native", "/operations/0/communication",
                R"({"collective": "all_reduce", "algorithm": "native", "parts": 2, "group": "dp", "bytes": 4})",
                "communication: parts 2: native is one call of the transport's library"},
        Mistake{"negative_inner", "/operations/0/communication",
                R"({"collective": "all_reduce", "algorithm": "hierarchical", "inner": -1, "group": "dp", "bytes": 4})",
                "communication: key 'inner': value -1 is not an integer in 0.."},
        Mistake{"inner_is_missing", "/operations/0/communication",
                R"({"collective": "all_reduce", "algorithm": "hierarchical", "group": "dp", "bytes": 4})",
                "communication: inner 0: hierarchical needs the size of its inner groups"},
        Mistake{"inner_of_a_ring", "/operations/0/communication",
                R"({"collective": "all_reduce", "algorithm": "ring", "inner": 2, "group": "dp", "bytes": 4})",
                "communication: inner 2: a ring has no inner groups"},
        Mistake{"scope", "/operations/0/communication",
                R"({"collective": "all_reduce", "algorithm": "ring", "group": "dp", "scope": "inne", "bytes": 4})",
                "communication: key 'scope': value 'inne' is not known; did you mean 'inner'?"},
        Mistake{"rule_of_compute", "/operations/0/rule", R"("all_reduce_in_halves")",
                "operations[0]: key 'rule': value 'all_reduce_in_halves': only a transfer has a rule"},
        Mistake{"leg_without_rule", "/operations/0/leg", "1", "operations[0]: key 'leg' needs a key 'rule'"},
        Mistake{"wait_operation", "/waits", "[[0, 1, 0], [100000, 0, 0]]",
                "plan.json: key 'waits'[1]: operation 100000 is not an integer in 0.."},
        Mistake{"wait_until", "/waits", "[[0, -1, 0]]", "plan.json: key 'waits'[0]: until -1 is not an integer in 0.."},
        Mistake{"wait_executions", "/waits", "[[0, 1, 2]]",
                "plan.json: key 'waits'[0]: executions 2 is not an integer in 0..1"},
        Mistake{"wait_shape", "/waits", "[[0, 1]]",
                "plan.json: key 'waits'[0]: an array of 2 is not [operation, until, executions]"},
        Mistake{"wait_is_object", "/waits", "{}", "plan.json: key 'waits': value {} is not an array"},
        Mistake{"wait_for_another_repetition", "/waits", "[[0, 1, 0], [0, 36, 0]]", "plan.json: wait 1: "},
        Mistake{"communication_key", "/operations/0/communication", R"({"size": 4})",
                "operations[0]: communication: key 'size' is not known"}),
    [](const testing::TestParamInfo<Mistake>& mistake) { return std::string(mistake.param.name); });

TEST(PlanFileMistakes, AreFoundInTextThatIsNotJson) {
  EXPECT_NE(message_of("{\"weft_plan\": 1,").find("plan.json: not JSON at byte"), std::string::npos);
  EXPECT_NE(message_of("").find("plan.json: not JSON at byte"), std::string::npos);
}

TEST(PlanFileMistakes, ManyOperationsInManyMicroBatchesAreTooMany) {
  json file = json::parse(text_of(plan_of({"", "gpt2", 1, "local:1", {}, 2})));
  file["layout"]["global_batch"] = file["micro_batches"] = 65'536;
  json repeated = file["operations"][0];
  repeated.erase("id");
  while (file["operations"].size() < 400) file["operations"].push_back(repeated);
  // 20,000,000 / 65,536 = 305.2 operations that repeat are too many; all but a few of these 400 do.
  EXPECT_NE(message_of(file.dump()).find("the plan has more than 20000000 operations a step"), std::string::npos)
      << message_of(file.dump());
}

TEST(PlanFileMistakes, ManyWaitsInManyMicroBatchesAreTooMany) {
  json file = json::parse(text_of(plan_of({"", "gpt2", 1, "local:1", {}, 2})));
  file["layout"]["global_batch"] = file["micro_batches"] = 65'536;
  // 20,000,000 / 65,536 = 305.2.
  for (int i = 0; i < 306; ++i) file["waits"].push_back({1, 0, 0});
  EXPECT_NE(message_of(file.dump()).find("key 'waits'[305]: with it the plan has more than 20000000 waits a step"),
            std::string::npos)
      << message_of(file.dump());
}

TEST(PlanFileMistakes, OfStagesAreNamed) {
  const json file = json::parse(text_of(plan_of({"", "gpt2", 1, "local:4", {}, 1})));
  std::size_t reduction = 0;
  while (!file["operations"][reduction].contains("communication")) ++reduction;
  const auto message = [&](const char* key, const json& value) {
    json changed = file;
    json& op = changed["operations"][reduction];
    op["rule"] = "all_reduce_in_halves";
    (std::string(key) == "scope" ? op["communication"] : op)[key] = value;
    return message_of(changed.dump());
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_EQ(message("leg", 1), "no error");  // whether it is true the verifier knows
  EXPECT_TRUE(contains(message("leg", 2), "key 'leg': value 2 is not an integer in 0..1")) << message("leg", 2);
  EXPECT_TRUE(contains(message("rule", "all_reduce_in_half"), "is not known; did you mean 'all_reduce_in_halves'?"));
  EXPECT_TRUE(contains(message("rule", "none"), "one that is not in legs has no such key"));
  EXPECT_TRUE(contains(message("scope", "inner"),
                       "communication: key 'scope': value 'inner': the dp group of stage 0 has no inner and outer"))
      << message("scope", "inner");
  EXPECT_TRUE(contains(message("scope", "self"), "key 'scope': value 'self' is not known"));
}

TEST(PlanFileMistakes, WhatOnlyTheVerifierKnowsStillReads) {
  // A slot that is issued twice is in range; it is the verifier that says the step is wrong.
  json file = json::parse(text_of(plan_of({"", "gpt2", 1, "local:1", Layout{.precision = ElementType::fp32}, 2})));
  file["classes"][0]["order"][1] = file["classes"][0]["order"][0];
  const std::optional<Violation> violation = verify_plan(read_plan_json(file.dump(), "plan.json"));
  ASSERT_TRUE(violation);
  EXPECT_NE(violation->message.find("is issued twice"), std::string::npos) << violation->message;
}

}  // namespace
}  // namespace weft
