// A plan file reads back as the plan it was written from.
#include "io/plan_json.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

#include "base/error.hpp"
#include "collective/algorithms.hpp"
#include "graph/substitute.hpp"
#include "io/model_json.hpp"
#include "io/test_plan_files.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/overlap.hpp"

namespace weft {
namespace {

using nlohmann::json;
using test::plan_of;
using test::PlanCase;
using test::text_of;

void expect_same_classes(const StepGraph& a, const StepGraph& b) {
  ASSERT_EQ(a.classes.size(), b.classes.size());
  for (std::size_t c = 0; c < a.classes.size(); ++c) {
    const RankClass &x = a.classes[c], &y = b.classes[c];
    EXPECT_EQ(std::tie(x.name, x.representative, x.ranks, x.stage, x.device),
              std::tie(y.name, y.representative, y.ranks, y.stage, y.device));
    ASSERT_EQ(x.groups.size(), y.groups.size());
    for (std::size_t g = 0; g < x.groups.size(); ++g) {
      EXPECT_EQ(x.groups[g].view, y.groups[g].view);
      EXPECT_EQ(x.groups[g].members, y.groups[g].members);
    }
    ASSERT_EQ(x.links.size(), y.links.size());
    for (std::size_t l = 0; l < x.links.size(); ++l) {
      EXPECT_EQ(x.links[l].link_class, y.links[l].link_class);
      EXPECT_EQ(x.links[l].ranks_on_link, y.links[l].ranks_on_link);
    }
  }
  ASSERT_EQ(a.links.size(), b.links.size());
  for (std::size_t l = 0; l < a.links.size(); ++l) {
    EXPECT_EQ(a.links[l].link, b.links[l].link);
    EXPECT_EQ(a.links[l].name, b.links[l].name);
  }
}

void expect_same(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.policy, b.policy);
  EXPECT_EQ(a.thread_blocks, b.thread_blocks);
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.cluster, b.cluster);
  EXPECT_EQ(a.layout, b.layout);
  EXPECT_EQ(a.graph.micro_batches, b.graph.micro_batches);
  expect_same_classes(a.graph, b.graph);
  EXPECT_TRUE(a.graph.operations == b.graph.operations);
  EXPECT_TRUE(a.graph.values == b.graph.values);
  EXPECT_TRUE(a.classes == b.classes);
  EXPECT_TRUE(a.issues == b.issues);
  EXPECT_TRUE(a.placements == b.placements);
  EXPECT_TRUE(a.waits == b.waits);
}

class PlanFile : public testing::TestWithParam<PlanCase> {};

TEST_P(PlanFile, ReadsBackAsTheSamePlan) {
  const Plan plan = plan_of(GetParam());
  const std::string text = text_of(plan);
  const Plan again = read_plan_json(text, "plan.json");
  expect_same(plan, again);
  EXPECT_EQ(text_of(again), text);
  const std::optional<Violation> violation = verify_plan(again, {.memory_limit = {}, .check_memory = false});
  EXPECT_FALSE(violation) << violation->message;
}

TEST(PlanFile, HoldsWaitsWhereThereAreAny) {
  Plan plan = plan_of({"", "gpt2", 2, "local:2", {}, 3});
  EXPECT_EQ(text_of(plan).find("\"waits\""), std::string::npos);
  for (std::int32_t i = 1; i < 40; ++i) plan.waits.push_back({{i}, {i - 1}, i % 2});
  std::erase_if(plan.waits, [&](const Wait& wait) {
    return plan.graph.op(wait.operation).per_micro_batch != plan.graph.op(wait.until).per_micro_batch;
  });
  const std::string text = text_of(plan);
  EXPECT_NE(text.find("\"waits\":[\n[1,0,1],[2,1,0],[3,2,1]"), std::string::npos);
  expect_same(read_plan_json(text, "plan.json"), plan);
}

TEST(PlanFile, SaysWhichOperationsAreLate) {
  Plan plan = plan_of({"", "gpt2", 2, "local:2", {}, 1});
  EXPECT_EQ(text_of(plan).find("\"late\""), std::string::npos);
  for (const OpId id : plan.issues.ids()) plan.issues[id].late = id.value % 3 == 0;
  const Plan again = read_plan_json(text_of(plan), "plan.json");
  expect_same(again, plan);
  // Every third operation cannot be: the verifier names one that must not.
  const CheckedPlan checked = check_plan(again);
  ASSERT_TRUE(checked.violation);
  EXPECT_NE(checked.violation->message.find("only weight gradients and what a step does once may be"),
            std::string::npos)
      << checked.violation->message;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, PlanFile,
    testing::Values(
        PlanCase{"one_rank", "gpt2", 2, "local:1", Layout{.precision = ElementType::fp32}, 1},
        PlanCase{"data_parallel", "gpt2", 2, "local:4,nic=200Mb/s", Layout{.micro_batch = 2, .clip_grad = 1.5}, 3},
        PlanCase{"tensor_parallel", "gpt2", 2, "dgx-a100:1",
                 Layout{.tp = 4,
                        .sequence_parallel = true,
                        .recompute = Recompute::selective,
                        .attention = AttentionKernel::unfused},
                 2},
        PlanCase{"mesh_order_and_uneven_stages", "gpt2", 5, "dgx-a100:2",
                 Layout{.tp = 2,
                        .pp = 2,
                        .recompute = Recompute::full,
                        .recompute_layers = {2, 0},
                        .precision = ElementType::fp16,
                        .grad_dtype = ElementType::bf16,
                        .schedule = PipelineSchedule::gpipe,
                        .stage_layers = {2, 3},
                        .mesh_order = {Axis::tp, Axis::pp, Axis::dp, Axis::cp}},
                 4},
        PlanCase{"interleaved", "gpt2", 8, "dgx-a100:1",
                 Layout{.tp = 2, .pp = 2, .vpp = 2, .schedule = PipelineSchedule::interleaved}, 4},
        PlanCase{"grouped_queries_zero_1", "llama2-70b", 4, "dgx-a100:2", Layout{.tp = 8, .zero = 1}, 2},
        PlanCase{
            "experts_as_deepseek", "deepseek-v3", 4, "dgx-a100:2",
            Layout{.ep = 16, .dispatch_fp8 = true, .ep_forwarding = true, .seq = 512, .recompute = Recompute::local},
            2},
        PlanCase{"zero_2", "gpt2", 2, "dgx-a100:1", Layout{.zero = 2}, 2},
        PlanCase{"zero_3", "gpt2", 2, "dgx-a100:1", Layout{.zero = 3}, 2},
        PlanCase{"zero_1_in_two_levels", "gpt2", 2, "dgx-a100:1", Layout{.zero = 1, .zero_shards = 4}, 2},
        PlanCase{"reduced_every_two", "gpt2", 2, "dgx-a100:1", Layout{.zero = 0, .reduce_every = 2}, 4},
        PlanCase{"zero_2_reduced_once", "gpt2", 2, "dgx-a100:1", Layout{.zero = 2, .reduce_every = Layout::kWholeStep},
                 4},
        PlanCase{"zero_3_in_layer_groups", "gpt2", 2, "dgx-a100:1", Layout{.zero = 3, .layer_group = 2}, 4},
        PlanCase{"warm_up_depth", "gpt2", 2, "dgx-a100:1", Layout{.pp = 2, .warm_up_depth = 3}, 4},
        PlanCase{"slices", "gpt2", 2, "dgx-a100:1", Layout{.pp = 2, .slice_tokens = {32, 20, 12}}, 2},
        PlanCase{"zero_3_in_two_levels", "gpt2", 2, "dgx-a100:1", Layout{.tp = 2, .zero = 3, .zero_shards = 2}, 2},
        PlanCase{"zero_plus_plus", "gpt2", 2, "dgx-a100:2",
                 Layout{.zero = 3,
                        .zero_secondary = 8,
                        .compress = {CompressionFormat::int4, 1000},
                        .compress_weights = CompressionFormat::int8},
                 2},
        PlanCase{"factors_of_low_rank", "gpt2", 2, "dgx-a100:1",
                 Layout{.zero = 1, .compress = {CompressionFormat::power_sgd, 1000, 3}}, 2},
        PlanCase{"encoded_between_nodes", "gpt2", 2, "dgx-a100:2",
                 Layout{.compress = {.format = CompressionFormat::int8, .min_elements = 1000, .between_nodes = true}},
                 2},
        PlanCase{"encoded_weights", "gpt2", 2, "dgx-a100:1",
                 Layout{.zero = 3, .compress_weights = CompressionFormat::int8}, 2},
        PlanCase{"context_parallel", "llama2-70b", 2, "dgx-a100:1", Layout{.tp = 2, .cp = 2}, 2},
        PlanCase{"experts", "mixtral-8x7b", 2, "dgx-a100:1", Layout{.ep = 4, .zero = 1}, 2},
        PlanCase{"experts_with_a_balance_loss", "gpt2-s-moe", 2, "dgx-a100:1", Layout{.ep = 8}, 1},
        PlanCase{"latent_attention_and_shared_experts", "deepseek-v3", 5, "dgx-a100:2",
                 Layout{.pp = 2, .ep = 8, .zero = 1}, 2}),
    [](const testing::TestParamInfo<PlanCase>& example) { return std::string(example.param.name); });

TEST(PlanFileOfUnequalNodes, ReadsBackAsTheSamePlan) {
  const NodeOverride slow{.node = 1, .level = "nic", .bandwidth = Bandwidth{1e9}, .latency = {}, .device = {}};
  const Plan plan = plan_of({"", "gpt2", 2, "dgx-a100:3", {.tp = 4}, 2}, {slow});
  EXPECT_GT(plan.graph.classes.size(), 1U);
  expect_same(plan, read_plan_json(text_of(plan), "plan.json"));
}

TEST(PlanFile, HoldsThePartsAndInnerGroupsOfPrograms) {
  Plan plan = plan_of({"", "gpt2", 1, "local:4", {.tp = 4}, 1});
  Communication* reduction = nullptr;
  for (Operation& op : plan.graph.operations) {
    if (op.communication) reduction = &*op.communication;
  }
  ASSERT_NE(reduction, nullptr);
  for (int i = 0; i <= static_cast<int>(Algorithm::native); ++i) {
    reduction->algorithm = static_cast<Algorithm>(i);
    if (reduction->algorithm == Algorithm::bruck || reduction->algorithm == Algorithm::pairwise) continue;
    reduction->parts = reduction->algorithm == Algorithm::native ? 1 : 4;
    reduction->inner = reduction->algorithm == Algorithm::hierarchical ? 2 : 0;
    expect_same(plan, read_plan_json(text_of(plan), "plan.json"));
  }
}

TEST(PlanFile, CarriesProgramsByValueOnce) {
  Plan plan = plan_of({"", "gpt2", 1, "local:4", {.tp = 4}, 1});
  const ProgramRef ring(CarriedProgram{"ring.xml", make_program({.ranks = 4, .parts = 3, .in_place = true})});
  std::int64_t named = 0;
  for (Operation& op : plan.graph.operations) {
    if (!op.communication || op.communication->collective != Collective::all_reduce) continue;
    op.communication->algorithm = Algorithm::carried;
    op.communication->parts = 1;
    op.communication->program = ring;
    ++named;
  }
  ASSERT_GT(named, 1);
  const std::string text = text_of(plan);
  const Plan read = read_plan_json(text, "plan.json");
  expect_same(plan, read);
  EXPECT_FALSE(verify_plan(read).has_value());
  EXPECT_EQ(text.find("ring.xml"), text.rfind("ring.xml")) << "it stands in the table alone";
}

TEST(PlanFile, HoldsTheStagesOfTransfers) {
  PlanRequest request;
  request.model = model_preset("gpt2");
  request.model.layers = 1;
  request.cluster = parse_cluster("dgx-a100:2");
  request.layout.dp = request.layout.global_batch = 16;
  request.layout.seq = 64;
  for (int zero = 0; zero <= 2; ++zero) {
    request.layout.zero = zero;
    const SharedGraph graph = build_step_graph(request.model, Cluster(request.cluster), request.layout);
    Overlap overlap = decide_overlap(request, graph, "ddp");
    overlap.partition.substitutions =
        first_possible(graph, {Substitution::all_reduce_in_levels, Substitution::reduce_scatter_in_levels,
                               Substitution::all_gather_in_levels});
    const Plan plan = make_whole_plan(request, graph, "ddp", overlap).plan();
    const std::string text = text_of(plan);
    EXPECT_NE(text.find("\"scope\":\"outer\""), std::string::npos);
    const Plan read = read_plan_json(text, "plan.json");
    expect_same(plan, read);
    EXPECT_FALSE(verify_plan(read).has_value());
  }
}

// A group's own levels are nodes; others are stated with their sizes, which must be those of the group.
TEST(PlanFile, HoldsTheLevelsThatAreNotAGroupsOwn) {
  PlanRequest request;
  request.model = model_preset("gpt2");
  request.model.layers = 1;
  request.cluster = parse_cluster("a100-pcie:2");
  request.layout.dp = request.layout.global_batch = 16;
  request.layout.seq = 64;
  const SharedGraph graph = build_step_graph(request.model, Cluster(request.cluster), request.layout);
  const std::vector<Substitution> three{Substitution::all_reduce_in_three_levels};
  for (const Nesting& nesting : std::vector<Nesting>{{0}, {1}, {0, 1}}) {
    Overlap overlap = decide_overlap(request, graph, "ddp");
    overlap.partition.substitutions =
        first_possible(graph, nesting.size() > 1 ? three : std::vector{Substitution::all_reduce_in_levels}, nesting);
    const Plan plan = make_whole_plan(request, graph, "ddp", overlap).plan();
    const std::string text = text_of(plan);
    EXPECT_EQ(text.find("\"levels\":[2,1]") != std::string::npos, nesting == Nesting{0});
    EXPECT_EQ(text.find("\"levels\":[2,4]") != std::string::npos, nesting.size() > 1);
    EXPECT_NE(text.find("\"scope\":\"inner\""), std::string::npos);
    const Plan read = read_plan_json(text, "plan.json");
    expect_same(plan, read);
    EXPECT_FALSE(verify_plan(read).has_value());
    if (nesting.size() == 1) continue;
    std::string wrong = text;
    for (std::size_t at = wrong.find("[2,4]"); at != std::string::npos; at = wrong.find("[2,4]")) {
      wrong.replace(at, 5, "[4,2]");
    }
    try {
      read_plan_json(wrong, "plan.json");
      FAIL() << "levels that the group does not have were read";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("has no inner of 4x2 groups"), std::string::npos) << error.what();
    }
  }
}

TEST(PlanFile, HoldsThePiecesOfPairs) {
  PlanRequest request;
  request.model = model_preset("gpt2");
  request.model.layers = 2;
  request.cluster = parse_cluster("dgx-a100:1,gpus=4");
  request.layout.tp = request.layout.pp = 2;
  request.layout.global_batch = 6;
  request.layout.seq = 64;
  const SharedGraph graph = build_step_graph(request.model, Cluster(request.cluster), request.layout);
  Overlap overlap = decide_overlap(request, graph, "ddp");
  overlap.beside.tensor_parallel = overlap.weave.enabled = overlap.weave.pairs = true;
  const Plan plan = make_whole_plan(request, graph, "ddp", overlap).plan();
  json file = json::parse(text_of(plan));
  EXPECT_EQ(file["classes"][0]["order"][0].size(), 4U);
  const Plan read = read_plan_json(text_of(plan), "plan.json");
  expect_same(plan, read);
  EXPECT_FALSE(verify_plan(read).has_value());
  file["classes"][1]["order"][1][3] = 9999;
  try {
    Unfolded(read_plan_json(file.dump(), "plan.json"));
    FAIL() << "a piece behind the end of its block was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("order"), std::string::npos) << error.what();
  }
}

TEST(PlanFile, WithoutStagesHasNoKeysForThem) {
  const json file = json::parse(text_of(plan_of({"", "gpt2", 1, "dgx-a100:2", Layout{}, 1})));
  for (const json& op : file["operations"]) {
    EXPECT_FALSE(op.contains("rule") || op.contains("leg")) << op;
    EXPECT_FALSE(op.contains("communication") && op["communication"].contains("scope")) << op;
  }
}

// Files from before there were parts have none of the two keys.
TEST(PlanFile, WithoutPartsIsInOnePartWithoutInnerGroups) {
  Plan plan = plan_of({"", "gpt2", 1, "local:4", {.tp = 4}, 1});
  for (Operation& op : plan.graph.operations) {
    if (!op.communication) continue;
    op.communication->algorithm = Algorithm::ring;
    op.communication->parts = 1;
  }
  const std::string text = text_of(plan);
  EXPECT_EQ(text.find("\"parts\""), std::string::npos);
  EXPECT_EQ(text.find("\"inner\""), std::string::npos);
  for (const Operation& op : read_plan_json(text, "plan.json").graph.operations) {
    if (!op.communication) continue;
    EXPECT_EQ(op.communication->parts, 1);
    EXPECT_EQ(op.communication->inner, 0);
  }
}

TEST(PlanFileText, HasOneLinePerValueOperationAndBlock) {
  const Plan plan = plan_of({"", "gpt2", 2, "local:2", Layout{.pp = 2}, 3});
  std::istringstream text(text_of(plan));
  std::int64_t values = 0, operations = 0, blocks = 0;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("{\"id\":")) ++(line.find("\"offset\":") != std::string::npos ? values : operations);
    if (line.starts_with("  {\"kind\":")) ++blocks;
  }
  EXPECT_EQ(values, static_cast<std::int64_t>(plan.graph.values.size()));
  EXPECT_EQ(operations, static_cast<std::int64_t>(plan.graph.operations.size()));
  EXPECT_EQ(blocks, 2 * 3);  // forward, backward and update on each of two stages
}

// A failed write names neither the file nor the reason here; who opened the stream knows both.
TEST(PlanFileText, LeavesAFailedStreamToWhoeverOpenedIt) {
  std::ostream nowhere(nullptr);
  EXPECT_NO_THROW(write_plan_json(nowhere, plan_of({"", "gpt2", 2, "local:2", {}, 3})));
  EXPECT_TRUE(nowhere.bad());
}

TEST(PlanFileText, OfALargeModelIsAFewMegabytes) {
  // Four stages of 20 layers: 80 layers of some 40 operations and as many values, a line of some 200 bytes
  // each.
  const std::string text = text_of(plan_of({"", "llama2-70b", 80, "dgx-a100:8", Layout{.tp = 8, .pp = 4}, 64}));
  EXPECT_GT(text.size(), 80U * 40U * 100U);
  EXPECT_LT(text.size(), 5U << 20U);
}

TEST(PlanFileText, KeepsWhatNoPolicyWritesYet) {
  Plan plan = plan_of({"", "gpt2", 1, "local:2", Layout{}, 2});
  Operation& op = plan.graph.operations[3];
  op.part = 5;
  op.key.phase = Phase::recompute;
  op.origins = {{OpId{3}, 2, 1, 3, 4}, {OpId{0}, 0, 0, 1, 1}};
  plan.graph.operations[4].origins.clear();
  plan.classes[0].queues.push_back({"a \"quoted\" n\u00e4me", QueueKind::extra});
  plan.issues[3].queue = plan.classes[0].queues.last_id();
  plan.policy = "none\n\\";
  plan.thread_blocks = 4;
  for (const Mover& mover : {Mover{.thread_blocks = 3}, Mover{.copy_engine = true}, Mover{1, true}}) {
    for (Operation& transfer : plan.graph.operations) {
      if (transfer.communication) transfer.communication->mover = mover;
    }
    expect_same(plan, read_plan_json(text_of(plan), "plan.json"));
  }
}

TEST(PlanFileText, AbsentKeysTakeTheirDefaults) {
  const Plan plan = plan_of({"", "gpt2", 1, "local:2", Layout{}, 2});
  json file = json::parse(text_of(plan));
  for (json& line : file["operations"]) line.erase("id"), line.erase("name");
  for (json& line : file["values"]) line.erase("id");
  for (const char* key :
       {"tp", "vpp", "ep", "zero", "recompute", "precision", "grad_dtype", "schedule", "mesh_order"}) {
    file["layout"].erase(key);
  }
  expect_same(plan, read_plan_json(file.dump(2), "plan.json"));
}

TEST(PlanFileText, SaysAutoOfTwoChunksInWavesWhereItIsOld) {
  using enum PipelineSchedule;
  const Plan plan = plan_of({"", "gpt2", 4, "local:2", {.pp = 2, .vpp = 2, .schedule = searched_waves}, 4});
  json file = json::parse(text_of(plan));
  EXPECT_EQ(file["layout"]["schedule"], "auto-waves");
  file["layout"]["schedule"] = "auto";
  expect_same(plan, read_plan_json(file.dump(2), "plan.json"));
}

TEST(PlanFile, HoldsPartsOfTransfersAndTheExtraQueue) {
  const Plan shape = plan_of({"", "gpt2", 2, "local:2", {.zero = 1}, 2});
  PlanRequest request{shape.model, shape.cluster, shape.layout, default_profile()};
  request.options.part_mib = 1;
  const Plan plan = make_plan(request, build_step_graph(shape.model, Cluster(shape.cluster), shape.layout), "priority");
  const std::string text = text_of(plan);
  EXPECT_NE(text.find(" part 2 of "), std::string::npos);
  EXPECT_NE(text.find("\"extra\""), std::string::npos);
  const Plan again = read_plan_json(text, "plan.json");
  expect_same(plan, again);
  const std::optional<Violation> violation = verify_plan(again, {.memory_limit = {}, .check_memory = false});
  EXPECT_FALSE(violation) << violation->message;
}

TEST(PlanFileText, WithoutDropoutSaysSo) {
  const Plan with = plan_of({"", "gpt2", 1, "local:2", {}, 1});
  EXPECT_EQ(text_of(with).find("\"dropout\""), std::string::npos);  // as in files older than the key
  const Plan without = plan_of({"", "gpt2", 1, "local:2", {.dropout = false}, 1});
  EXPECT_FALSE(read_plan_json(text_of(without), "plan.json").layout.dropout);
  EXPECT_LT(without.graph.values.size(), with.graph.values.size());  // no masks
}

TEST(PlanFileText, KeepsRatesOfDropout) {
  Transformer model = model_preset("gpt2");
  model.dropout = {.embedding = 0, .attention = 0.25, .hidden = 0.5};
  EXPECT_EQ(model_from_json(nlohmann::json::parse(model_to_json(model).dump()), "model").dropout, model.dropout);
}

TEST(PlanFileText, IsRefusedWhereItIsCutOff) {
  const std::string text = text_of(plan_of({"", "gpt2", 1, "local:2", Layout{}, 1}));
  for (std::size_t length = 0; length + 2 < text.size(); length += 997) {
    EXPECT_THROW(read_plan_json(text.substr(0, length), "plan.json"), Error) << length;
  }
}

TEST(PlanFileText, IsNotWrittenWhereItCouldNotBeRead) {
  Plan layers = plan_of({"", "gpt2", 1, "local:1", Layout{}, 1});
  layers.model.layers = 10'001;
  EXPECT_THROW(text_of(layers), Error);
  Plan micro_batches = plan_of({"", "gpt2", 1, "local:1", Layout{}, 1});
  micro_batches.graph.micro_batches = 20'000'000;  // some thirty operations repeat
  EXPECT_THROW(text_of(micro_batches), Error);
}

std::string content_of(const char* path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

TEST(PlanFormatPage, ShowsLinesThatTheWriterWrites) {
  const std::string tiny = content_of(WEFT_SOURCE_DIR "/fuzz/corpus/plan/tiny.json");
  std::istringstream text(text_of(read_plan_json(tiny, "tiny.json")));
  std::set<std::string> written;
  for (std::string line; std::getline(text, line);) written.insert(line);
  const std::string page = content_of(WEFT_SOURCE_DIR "/docs/plan-format.md");
  const std::size_t begin = page.find("```json\n");
  ASSERT_NE(begin, std::string::npos);
  std::istringstream excerpt(page.substr(begin + 8, page.find("```", begin + 8) - begin - 8));
  int shown = 0;
  for (std::string line; std::getline(excerpt, line);) {
    if (line == "...") continue;
    ++shown;
    EXPECT_TRUE(written.contains(line)) << line;
  }
  EXPECT_GT(shown, 10);
}

}  // namespace
}  // namespace weft
