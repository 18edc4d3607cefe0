#include "comm/launch.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace weft {
namespace {

std::string complaint(const Variables& variables) {
  try {
    launch_from(variables);
  } catch (const Error& error) {
    return error.what();
  }
  return "no complaint";
}

constexpr const char* kSecret = "0123456789abcdef";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Launch, WithoutVariablesIsLocal) {
  EXPECT_EQ(launch_from({}), Launch{});
  EXPECT_EQ(launch_from({{"HOME", "/root"}, {"SLURM_NTASKS", "8"}}), Launch{});  // an allocation, no job step
}

TEST(Launch, ReadsOurOwnVariables) {
  const Launch launch = launch_from({{"WEFT_RANK", "2"},
                                     {"WEFT_RANKS", "4"},
                                     {"WEFT_ROOT_ADDRESS", "node01:4242"},
                                     {"WEFT_JOB_SECRET", kSecret},
                                     {"WEFT_ROOT_LISTENER", "7"},
                                     {"WEFT_LAUNCHER_NEWS", "8"},
                                     {"OMPI_COMM_WORLD_RANK", "9"}});
  EXPECT_EQ(launch.kind, LaunchKind::tcp);
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.ranks, 4);
  EXPECT_EQ(launch.root, "node01:4242");
  EXPECT_EQ(launch.secret, kSecret);
  EXPECT_EQ(launch.root_listener, -1);  // only rank 0 has it
  EXPECT_EQ(launch.launcher_news, 8);
}

TEST(Launch, UnderMpirunAsksMpi) {
  const Launch open_mpi =
      launch_from({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(open_mpi.kind, LaunchKind::mpi);
  EXPECT_EQ(open_mpi.rank, 3);
  EXPECT_EQ(open_mpi.local_rank, 1);
  const Launch mpich = launch_from({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(mpich.kind, LaunchKind::mpi);
  EXPECT_EQ(mpich.ranks, 2);
}

TEST(Launch, UnderMpichKnowsTheLocalRankWhereHydraSaysIt) {
  EXPECT_EQ(launch_from({{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}}).local_rank, 1);
}

Variables torchrun_worker() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"MASTER_ADDR", "node01"},
          {"MASTER_PORT", "29500"},
          {"WEFT_JOB_SECRET", kSecret}};
}

TEST(Launch, ReadsTheVariablesOfTorchrun) {
  const Launch by_hand = launch_from(torchrun_worker());
  EXPECT_EQ(by_hand.kind, LaunchKind::tcp);
  EXPECT_EQ(by_hand.rank, 5);
  EXPECT_EQ(by_hand.ranks, 8);
  EXPECT_EQ(by_hand.local_rank, 1);
  EXPECT_EQ(by_hand.gpu, 1);
  EXPECT_EQ(by_hand.root, "node01:29500");
  EXPECT_EQ(by_hand.secret, kSecret);
  // The port itself is torchrun's own.
  Variables elastic = torchrun_worker();
  elastic["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(launch_from(elastic).root, "node01:29501");
}

TEST(Launch, TakesCommonNamesForALaunchersOnlyTogether) {
  for (const char* missing : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    Variables some = torchrun_worker();
    some.erase(missing);
    EXPECT_EQ(launch_from(some), Launch{}) << missing;
  }
  Variables of_slurm = torchrun_worker();
  of_slurm["OMPI_COMM_WORLD_RANK"] = "0";
  of_slurm["OMPI_COMM_WORLD_SIZE"] = "2";
  EXPECT_EQ(launch_from(of_slurm).kind, LaunchKind::mpi);
  Variables alone = torchrun_worker();
  alone["RANK"] = "0";
  alone["WORLD_SIZE"] = "1";
  EXPECT_EQ(launch_from(alone).kind, LaunchKind::local);
}

TEST(Launch, NamesWhatTorchrunsVariablesLack) {
  const auto with = [](const char* name, const char* value) {
    Variables changed = torchrun_worker();
    changed[name] = value;
    return complaint(changed);
  };
  EXPECT_PRED2(contains, with("WEFT_JOB_SECRET", ""), "RANK is set but WEFT_JOB_SECRET is not");
  EXPECT_PRED2(contains, with("MASTER_PORT", "65535"), "MASTER_PORT=65535 is not in 1..65534");
  EXPECT_PRED2(contains, with("MASTER_PORT", "here"), "MASTER_PORT");
  EXPECT_PRED2(contains, with("RANK", "8"), "RANK=8 is not in 0..7");
}

// One process for each of several GPUs: all see all of them, or each sees its own.
TEST(Launch, TakesTheGpuOfTheLocalRankOrTheOnlyOneInSight) {
  Variables rank{{"OMPI_COMM_WORLD_RANK", "6"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}};
  EXPECT_EQ(launch_from(rank).gpu, 2);
  rank["CUDA_VISIBLE_DEVICES"] = "4,5,6,7";
  EXPECT_EQ(launch_from(rank).gpu, 2);
  rank["CUDA_VISIBLE_DEVICES"] = "6";
  EXPECT_EQ(launch_from(rank).gpu, 0);
  EXPECT_EQ(launch_from({{"CUDA_VISIBLE_DEVICES", "3"}}), Launch{});
}

Variables slurm_step() {
  return {{"SLURM_PROCID", "5"},       {"SLURM_NTASKS", "8"},
          {"SLURM_LOCALID", "1"},      {"SLURM_STEP_NODELIST", "gpu[03-05,09]"},
          {"SLURM_JOB_ID", "100"},     {"SLURM_JOB_NODELIST", "login,gpu[03-05,09]"},
          {"WEFT_JOB_SECRET", kSecret}};
}

TEST(Launch, UnderSlurmWithPmixIsTheMpiLibrarysAffair) {
  Variables variables = slurm_step();
  variables["PMIX_RANK"] = "5";
  const Launch launch = launch_from(variables);
  EXPECT_EQ(launch.kind, LaunchKind::mpi);
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.ranks, 8);
  EXPECT_EQ(launch.root, "");
  variables["SLURM_PROCID"] = "0";
  variables["SLURM_NTASKS"] = "1";
  EXPECT_EQ(launch_from(variables), Launch{});
}

TEST(Launch, UnderSrunFindsRankZeroOnTheFirstNodeOfTheStep) {
  const Launch launch = launch_from(slurm_step());
  EXPECT_EQ(launch.kind, LaunchKind::tcp);
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.ranks, 8);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.root, "gpu03:15100");
  EXPECT_EQ(launch.secret, kSecret);
}

TEST(Launch, SlurmsPortStaysInRangeForAnyJob) {
  Variables variables = slurm_step();
  for (const char* job : {"0", "16999", "17000", "4294967294"}) {
    variables["SLURM_JOB_ID"] = job;
    const std::string root = launch_from(variables).root;
    const int port = std::stoi(root.substr(root.find(':') + 1));
    EXPECT_GE(port, 15000) << job;
    EXPECT_LT(port, 32000) << job;
  }
}

TEST(Launch, OneTaskOfSlurmIsLocal) {
  Variables variables = slurm_step();
  variables["SLURM_PROCID"] = "0";
  variables["SLURM_NTASKS"] = "1";
  EXPECT_EQ(launch_from(variables), Launch{});
}

TEST(Launch, NamesWhatIsMissingOrSenseless) {
  EXPECT_TRUE(contains(complaint({{"WEFT_RANK", "1"}}), "WEFT_RANKS is not"));
  EXPECT_TRUE(contains(complaint({{"WEFT_RANKS", "2"}}), "WEFT_RANK is not"));
  EXPECT_TRUE(contains(complaint({{"WEFT_RANK", "0"}, {"WEFT_RANKS", "2"}}), "WEFT_ROOT_ADDRESS is not"));
  EXPECT_TRUE(contains(complaint({{"OMPI_COMM_WORLD_SIZE", "2"}}), "OMPI_COMM_WORLD_RANK is not"));
  EXPECT_TRUE(contains(complaint({{"PMI_RANK", "two"}, {"PMI_SIZE", "2"}}), "PMI_RANK"));
  EXPECT_TRUE(contains(complaint({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}), "PMI_RANK=2 is not in 0..1"));
  EXPECT_TRUE(contains(complaint({{"PMI_RANK", "-1"}, {"PMI_SIZE", "2"}}), "PMI_RANK=-1"));
  EXPECT_TRUE(contains(complaint({{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}), "PMI_SIZE=0"));
  for (const char* address : {"node01", ":1", "node01:", "node01:x", "node01:70000"}) {
    EXPECT_TRUE(contains(complaint({{"WEFT_RANK", "0"}, {"WEFT_RANKS", "2"}, {"WEFT_ROOT_ADDRESS", address}}),
                         "WEFT_ROOT_ADDRESS"))
        << address;
  }
}

// Whoever knows the number of a job, or nothing at all, must not be able to join it.
TEST(Launch, AJobOverTcpNeedsASecretThatIsNotShort) {
  const Variables variables{{"WEFT_RANK", "0"}, {"WEFT_RANKS", "2"}, {"WEFT_ROOT_ADDRESS", "127.0.0.1:4242"}};
  for (Variables each : {variables, slurm_step()}) {
    each.erase("WEFT_JOB_SECRET");
    EXPECT_TRUE(contains(complaint(each), "WEFT_JOB_SECRET is not; expected 16 characters")) << complaint(each);
    each["WEFT_JOB_SECRET"] = "fifteen letters";
    EXPECT_TRUE(contains(complaint(each), "WEFT_JOB_SECRET has 15 characters")) << complaint(each);
    each["WEFT_JOB_SECRET"] = "sixteen letters!";
    EXPECT_EQ(launch_from(each).secret, "sixteen letters!");
  }
}

TEST(Launch, NamesWhatSlurmDoesNotSay) {
  for (const char* name : {"SLURM_NTASKS", "SLURM_JOB_ID"}) {
    Variables variables = slurm_step();
    variables.erase(name);
    EXPECT_TRUE(contains(complaint(variables), std::string(name) + " is not")) << complaint(variables);
  }
  Variables variables = slurm_step();
  variables.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(launch_from(variables).root, "login:15100");
  variables.erase("SLURM_JOB_NODELIST");
  EXPECT_TRUE(contains(complaint(variables), "SLURM_STEP_NODELIST is not"));
}

TEST(Launch, FirstHostOfANodeList) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[03-05,09]"), "node03");
  EXPECT_EQ(first_host("node[7]"), "node7");
  EXPECT_EQ(first_host("node[03,05],login"), "node03");
  EXPECT_EQ(first_host("login,node[03,05]"), "login");
  EXPECT_EQ(first_host("rack[1-2]n[01-40].site"), "rack1n01.site");
  EXPECT_THROW(first_host(""), Error);
  EXPECT_THROW(first_host(",node1"), Error);
  EXPECT_THROW(first_host("node["), Error);
  EXPECT_THROW(first_host("node[]"), Error);
  EXPECT_THROW(first_host("node[03"), Error);
}

}  // namespace
}  // namespace weft
