// The CSV files of torch.distributed.pipelining, read and written.
#include "io/pipeline_csv.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace weft {
namespace {

TEST(PipelineCsv, EveryKindOfActionIsReadAndWrittenAlike) {
  const std::string text = "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n1RECV_F0,1F0,1I0,1SEND_B0,1W0\n";
  const PipelineActions actions = read_pipeline_csv(text, "schedule.csv");
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(actions[0][2], (PipelineAction{ActionKind::send_forward, 0, 0}));
  EXPECT_EQ(actions[0][5], (PipelineAction{ActionKind::reduce_grad, 0, -1}));
  EXPECT_EQ(write_pipeline_csv(actions), text);
}

TEST(PipelineCsv, PausesSpacesQuotesAndPairs) {
  const PipelineActions actions = read_pipeline_csv(" 0F0 ,,\"0F1\",(0F2;0B0)OVERLAP_F_B\r\n\n1F0\r\n", "schedule.csv");
  EXPECT_EQ(write_pipeline_csv(actions), "0F0,0F1,0F2,0B0\n1F0\n");
}

TEST(PipelineCsv, MistakesNameTheCell) {
  for (const auto& [text, words] : {std::pair{"0F0,0X1\n", "schedule.csv: row 1, column 2: '0X1' is no action"},
                                    {"0F0\nF1\n", "row 2, column 1: 'F1'"},
                                    {"0F\n", "'0F' is no action"},
                                    {"0UNSHARD1\n", "'0UNSHARD1' is no action"},
                                    {"(0F1;1B0\n", "is no action"},
                                    {"99999999999999999999F0\n", "is not in 0..65535"},
                                    {"", "has no row"}}) {
    try {
      read_pipeline_csv(text, "schedule.csv");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace weft
