#include "io/program_json.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/json_text.hpp"
#include "base/test_folder.hpp"
#include "collective/algorithms.hpp"
#include "io/program_folder.hpp"

namespace weft {
namespace {

TEST(ProgramJson, ReadsBackEveryGeneratorsProgram) {
  for (const Collective kind :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    for (const Algorithm algorithm : algorithms_for(kind)) {
      const ProgramRequest request{.algorithm = algorithm,
                                   .kind = kind,
                                   .ranks = 4,
                                   .parts = 2,
                                   .in_place = kind == Collective::all_reduce,
                                   .inner = algorithm == Algorithm::hierarchical ? 2 : 0};
      const CarriedProgram carried{"a test", make_program(request)};
      const std::string text = json_text(carried_to_json(carried));
      EXPECT_EQ(carried_from_json(nlohmann::json::parse(text), "program"), carried) << name_of(algorithm);
    }
  }
}

TEST(ProgramJson, FilesAndPlansKeepHelpers) {
  const Program program = make_program(
      {.algorithm = Algorithm::parameter_server, .kind = Collective::all_reduce, .ranks = 4, .servers = 2});
  ASSERT_EQ(program.ranks.size(), 6U);
  EXPECT_EQ(read_program_json(json_text(program_to_json(program)), "p.json"), program);
  const nlohmann::json carried = nlohmann::json::parse(json_text(carried_to_json({"t", program})));
  EXPECT_EQ(carried_from_json(carried, "plan").program, program);
}

std::string refusal_of_program(const std::string& path, const nlohmann::json& value) {
  nlohmann::json json = nlohmann::json::parse(json_text(carried_to_json({"t", make_program({.ranks = 2})})));
  json[nlohmann::json::json_pointer(path)] = value;
  try {
    carried_from_json(json, "plan.json: programs[0]");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ProgramJson, RefusesMistakesWithTheirPlace) {
  EXPECT_EQ(refusal_of_program("/name", "ring"), "");
  EXPECT_NE(refusal_of_program("/pieces", 0).find("plan.json: programs[0]: key 'pieces': value 0"), std::string::npos);
  EXPECT_NE(refusal_of_program("/programs", nlohmann::json::array()).find("2 programs, one for every rank"),
            std::string::npos);
  EXPECT_NE(refusal_of_program("/programs/1/blocks/0/steps/0/0", "sned")
                .find("programs[1]: blocks[0]: steps[0]: instruction 'sned'"),
            std::string::npos);
  EXPECT_NE(refusal_of_program("/programs/0/blocks/0/steps/0/2", -1).find("is not an integer in 0.."),
            std::string::npos);
  EXPECT_NE(refusal_of_program("/programs/0/blocks/0/steps/0", "x").find("this is not [kind"), std::string::npos);
}

TEST(ProgramFolder, KeepsProgramsAndShrugsAtBrokenFiles) {
  const test::ScratchFolder folder("programs");
  const CarriedProgram ring{"ring", make_program({.ranks = 3, .in_place = true})};
  ProgramFolder store(folder.file("deep/er"));
  EXPECT_EQ(store.find("a"), std::nullopt);
  store.keep("a", ring);
  EXPECT_EQ(store.find("a"), ring);
  EXPECT_EQ(store.find("b"), std::nullopt);
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("deep/er"))) {
    const std::string whole = read_text_file(entry.path());
    std::ofstream(entry.path()) << whole.substr(0, whole.size() / 2);
  }
  EXPECT_EQ(store.find("a"), std::nullopt) << "the file ends in its middle";
  store.keep("a", ring);
  EXPECT_EQ(store.find("a"), ring);
}

TEST(ProgramFolder, AFolderThatCannotBeMadeIsNoError) {
  ProgramFolder store("/proc/no/such/place");
  store.keep("a", {"ring", make_program({.ranks = 2})});
  EXPECT_EQ(store.find("a"), std::nullopt);
}

}  // namespace
}  // namespace weft
