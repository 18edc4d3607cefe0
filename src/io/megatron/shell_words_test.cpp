#include "io/megatron/shell_words.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "io/megatron/launch_flags.hpp"
#include "io/megatron/shell_arithmetic.hpp"

namespace weft {
namespace {

using Texts = std::vector<std::string>;

// The words of all commands.
Texts words(const std::string& text) {
  Texts result;
  for (const auto& command : read_shell(text, "job.sh").commands) {
    for (const ShellWord& word : command) result.push_back(word.text);
  }
  return result;
}

std::string error_of(const std::string& text) {
  try {
    read_shell(text, "job.sh");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Shell, WordsQuotesCommentsAndContinuedLines) {
  EXPECT_EQ(words("a b\\\n  c # not this\nd"), (Texts{"a", "b", "c", "d"}));
  EXPECT_EQ(words("a 'b c' \"d e\" f\\ g h#i ''"), (Texts{"a", "b c", "d e", "f g", "h#i", ""}));
  EXPECT_EQ(words("a \\\r\n b\r\n"), (Texts{"a", "b"}));
  EXPECT_EQ(words("\"a \\\"b\\\"\" 'it'\\''s'"), (Texts{"a \"b\"", "it's"}));
}

TEST(Shell, CommandsEndAtLinesAndOperators) {
  EXPECT_EQ(read_shell("a b; c && d || e | f\ng &", "job.sh").commands.size(), 6u);
}

TEST(Shell, RedirectionsAreNoWords) {
  EXPECT_EQ(words("run --x 1 > log.txt 2>&1"), (Texts{"run", "--x", "1"}));
  EXPECT_EQ(words("run --x 1 &> log.txt"), (Texts{"run", "--x", "1"}));
  EXPECT_EQ(words("run --x 1 2>/dev/null < in"), (Texts{"run", "--x", "1"}));
}

TEST(Shell, VariablesAreSplitUnlessQuoted) {
  EXPECT_EQ(words("A=1\nB='2 3'\nrun $A ${A}x $B \"$B\" '$B'"), (Texts{"run", "1", "1x", "2", "3", "2 3", "$B"}));
  EXPECT_EQ(words("A=1; A=$A$A; export B=7; run $A $B"), (Texts{"export", "run", "11", "7"}));
  EXPECT_EQ(words("A=1 run $A"), (Texts{"run", "1"}));
  EXPECT_EQ(words("run ${A:-5} ${A:-}x"), (Texts{"run", "5", "x"}));
  EXPECT_EQ(words("A=6\nrun ${A:-5}"), (Texts{"run", "6"}));
  EXPECT_EQ(words("A=x\nA+=y\nrun $A"), (Texts{"run", "xy"}));
}

TEST(Shell, OnlyTheFirstBranchOfAnIfIsRead) {
  EXPECT_EQ(words("if [ $X ]; then\nTP=2\nelse\nTP=4\nfi\nrun $TP"), (Texts{"if", "[", "$X", "]", "then", "run", "2"}));
  const auto last = [](const std::string& text) { return words(text).back(); };
  EXPECT_EQ(last("if a; then N=1; elif b; then N=2; else N=3; fi; run $N"), "1");
  EXPECT_EQ(last("if a; then\nN=1\nelse\nif b; then N=2; else N=3; fi\nN=4\nfi\nrun $N"), "1");
  EXPECT_EQ(last("if a; then if b; then N=1; else N=2; fi; else N=3; fi; run $N"), "1");
  EXPECT_EQ(last("N=5; if a; then N=1; else N=2"), "then");  // no fi: nothing after it is read
}

TEST(Shell, WhatIsNotSetStays) {
  EXPECT_EQ(words("run $NO ${NO} $1 $@ $(hostname -s) `date` ${A%b} $"),
            (Texts{"run", "$NO", "${NO}", "$1", "$@", "$(hostname -s)", "`date`", "${A%b}", "$"}));
}

TEST(Shell, Arrays) {
  const std::string set = "ARGS=(\n  --a 1 # one\n  --b \"2 3\"\n)\n";
  EXPECT_EQ(words(set + "run ${ARGS[@]}"), (Texts{"run", "--a", "1", "--b", "2 3"}));
  EXPECT_EQ(words(set + "run \"${ARGS[@]}\" z"), (Texts{"run", "--a", "1", "--b", "2 3", "z"}));
  EXPECT_EQ(words(set + "ARGS+=(--c)\nrun ${ARGS[*]}"), (Texts{"run", "--a", "1", "--b", "2 3", "--c"}));
  EXPECT_EQ(words(set + "X=(${ARGS[@]} 9)\nrun ${X[@]}"), (Texts{"run", "--a", "1", "--b", "2 3", "9"}));
  EXPECT_EQ(words(set + "X=\"${ARGS[@]}\"\nrun $X"), (Texts{"run", "--a", "1", "--b", "2", "3"}));
  EXPECT_EQ(words("E=()\nrun \"${E[@]}\" x"), (Texts{"run", "x"}));
}

TEST(Shell, WordsKnowTheirLines) {
  const ShellText text = read_shell("A=(\n--a\n--b\n)\n\nrun \\\n ${A[@]} \\\n --c", "job.sh");
  ASSERT_EQ(text.commands.size(), 1u);
  EXPECT_EQ(text.commands[0][0], (ShellWord{"run", 6}));
  EXPECT_EQ(text.commands[0][1], (ShellWord{"--a", 2}));
  EXPECT_EQ(text.commands[0].back(), (ShellWord{"--c", 8}));
}

TEST(Shell, WhatHasNoEndIsNamed) {
  EXPECT_EQ(error_of("a\nb 'c"), "job.sh: line 2: a quote (') has no end");
  EXPECT_EQ(error_of("a \"c\n\n"), "job.sh: line 1: a quote (\") has no end");
  EXPECT_EQ(error_of("A=(1 2"), "job.sh: line 1: A=( has no end");
  EXPECT_EQ(error_of("a ${A"), "job.sh: line 1: a ${ has no end");
  EXPECT_EQ(error_of("a `b"), "job.sh: line 1: a ` has no end");
}

TEST(Shell, DoublingDoesNotEatTheMachine) {
  std::string text = "A=xxxxxxxxxxxxxxxx\nB=(1 2 3)\n";
  std::string words_too = text;
  for (int i = 0; i < 64; ++i) text += "A=$A$A\n";
  for (int i = 0; i < 64; ++i) words_too += "B=(${B[@]} ${B[@]})\n";
  EXPECT_NE(error_of(text).find("grow beyond a megabyte"), std::string::npos);
  EXPECT_NE(error_of(words_too).find("grow beyond a megabyte"), std::string::npos);
}

TEST(ShellArithmetic, ComputesWholeNumbers) {
  const ShellLookup lookup = [](const std::string& name) -> std::optional<std::string> {
    if (name == "A") return "6";
    if (name == "S") return "six";
    return std::nullopt;
  };
  EXPECT_EQ(shell_arithmetic("1+2*3-4", lookup), 3);
  EXPECT_EQ(shell_arithmetic(" (1 + 2) * $A / 4 ", lookup), 4);
  EXPECT_EQ(shell_arithmetic("${A} % 4 * A", lookup), 12);
  for (const char* wrong : {"", "1+", "1/0", "B", "S", "(1", "1 2", "9223372036854775807 + 1", "1 << 2"}) {
    EXPECT_EQ(shell_arithmetic(wrong, lookup), std::nullopt) << wrong;
  }
  EXPECT_EQ(shell_arithmetic(std::string(100'000, '('), lookup), std::nullopt);
  EXPECT_EQ(words("N=4\nrun $((N*8)) x$(( $N / 2 ))y"), (Texts{"run", "32", "x2y"}));
}

TEST(LaunchFlags, ComeFromTheLastPythonCommand) {
  const auto flags = read_launch_flags(
      "python prepare.py --a 1\ntorchrun --nnodes 2 train.py \\\n --b 2 3 --c=4 --d\nrm --force x\n", "job.sh");
  EXPECT_EQ(flags, (std::vector<LaunchFlag>{
                       {"--nnodes", {"2"}, 2}, {"--b", {"2", "3"}, 3}, {"--c", {"4"}, 3}, {"--d", {}, 3}}));
}

TEST(LaunchFlags, ComeFromBareLinesAndArraysToo) {
  EXPECT_EQ(read_launch_flags("--a 1 --b", "job.sh").size(), 2u);
  EXPECT_EQ(read_launch_flags("A=(--a 1)\nB=(--b)\necho hi", "job.sh"),
            (std::vector<LaunchFlag>{{"--a", {"1"}, 1}, {"--b", {}, 2}}));
  // A command line kept in a variable, as the older scripts do.
  EXPECT_EQ(
      read_launch_flags("options=\" \\\n --a 1 \\\n --b\"\nrun=\"python -u t.py ${options}\"\nsrun -l sh -c \"${run}\"",
                        "job.sh"),
      (std::vector<LaunchFlag>{{"--a", {"1"}, 5}, {"--b", {}, 5}}));
  EXPECT_THROW(read_launch_flags("echo hi", "job.sh"), Error);
}

}  // namespace
}  // namespace weft
