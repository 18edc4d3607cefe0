#!/usr/bin/env python3
"""Tasks of a user (`--extra`, docs/extra-format.md) from the file to the run: predicted steps against the closed form of a
pipeline's bubbles, windows in the plan and in the proof, losses, and mistakes.

    extra_work_test.py WEFT
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Four equal stages but for the ends of the model, which a vocabulary of 16 words makes small; messages cost next to nothing.
STAGES = ("--layers 8 --hidden 256 --heads 4 --vocab 16 --seq 64 --no-dropout --cluster local:4,nic=1000Gb/s --pp 4 --micro-batch 8 "
          "--global-batch 32 --schedule gpipe --budget 0.2").split()
SMALL = ("--layers 4 --hidden 32 --heads 4 --vocab 256 --seq 16 --no-dropout --cluster local:2,nic=1GB/s --pp 2 --micro-batch 2 "
         "--global-batch 8 --schedule gpipe --budget 0.1 --threads 1").split()
# Between the last forward of the first stage and its first backward, where GPipe has (p - 1) (F + B) of bubbles.
EVALUATE = {"name": "evaluate", "stage": 0, "release": "layer 1 ffn_residual forward", "deadline": "layer 1 ffn_out input_grad"}


class Test:
    def __init__(self, weft, folder):
        self.weft, self.folder, self.failures = weft, folder, 0
        (folder / "any_machine.json").write_text('{"weft_profile": 1}')

    def extra(self, tasks, may_wait=()):
        path = self.folder / "extra.json"
        path.write_text(json.dumps({"weft_extra": 1, "tasks": tasks, "may_wait": list(may_wait)}))
        return ["--extra", path]

    def call(self, command, *flags):
        return subprocess.run([self.weft, command, *map(str, flags)], capture_output=True, text=True, timeout=300)

    def plan(self, *flags):
        done = self.call("plan", *STAGES, "--json", "--profile", self.folder / "any_machine.json", *flags)
        if done.returncode != 0:
            sys.exit(f"weft plan {flags}: {done.stderr}")
        return json.loads(done.stdout)["policies"]

    def expect(self, fact, what):
        print(f"{'ok' if fact else 'FAIL':4}  {what}", flush=True)
        self.failures += not fact

    def predicted_steps(self):
        without = self.plan("--policy", "serial,weft")
        alone = without["serial"]["step_s"]
        short = 0.2 * alone  # of a bubble of 3/7 of the step
        with_task = self.plan("--policy", "serial,weft", *self.extra([{**EVALUATE, "seconds": short}]))
        grown = with_task["serial"]["step_s"] - alone
        self.expect(with_task["weft"]["step_s"] <= 1.001 * without["weft"]["step_s"],
                    f"a task that fits its bubble costs nothing there ({with_task['weft']['step_s']:.6f} and "
                    f"{without['weft']['step_s']:.6f} s)")
        task = with_task["weft"]["tasks"][0]
        self.expect(task["released_s"] <= task["start_s"] and task["end_s"] <= task["due_s"] + 1e-9 and
                    abs(task["end_s"] - task["start_s"] - short) < 1e-6, f"it runs in its window: {task}")
        # In line it stands behind the last forward of stage 0, which sends before, so it takes the stage's own idle time too.
        self.expect(abs(grown) <= 0.001 * alone, f"in line, in the same gap, neither ({grown:.6f} s)")
        # Stage 0 of GPipe is idle only there, so what is longer than the gap lengthens the step by the rest.
        gap = alone - without["serial"]["stages"][0]["compute_s"]
        long = gap + 0.3 * alone
        found = self.plan("--policy", "weft", *self.extra([{**EVALUATE, "seconds": long}]))["weft"]["step_s"]
        self.expect(abs(found - (alone + long - gap)) < 0.01 * alone,
                    f"a task beyond its gap costs what does not fit ({found:.6f} s, closed form {alone + long - gap:.6f} s)")

    def weight_grads_wait(self):
        """ZB-H1 is 1F1B with weight gradients in the bubbles: waiting ones get at least part of the way there."""
        profile = ["--profile", self.folder / "any_machine.json"]
        step = {}
        for name, schedule, extra in (("1f1b", "1f1b", []), ("waiting", "1f1b", self.extra([], ["weight_grads"])),
                                      ("zb-h1", "zb-h1", [])):
            flags = [schedule if flag == "gpipe" else flag for flag in STAGES]
            done = self.call("plan", *flags, "--json", "--policy", "weft", *profile, *extra)
            step[name] = json.loads(done.stdout)["policies"]["weft"]["step_s"]
        self.expect(step["waiting"] < step["1f1b"], f"weight gradients of 1F1B that wait shorten the step: {step}")

    def proof(self):
        out = self.folder / "plan"
        done = self.call("plan", *STAGES, "--policy", "weft", "--profile", self.folder / "any_machine.json", "--out", out,
                         *self.extra([{**EVALUATE, "seconds": 0.001}]))
        self.expect(done.returncode == 0 and "Task 'evaluate' on stage 0" in done.stdout, "the report says when it runs")
        plan = next(out.rglob("plan.json"))
        text = plan.read_text()
        content = json.loads(text)
        [task] = [op["id"] for op in content["operations"] if op["role"] == "task"]
        self.expect([row for row in content["windows"] if row[0] == task] != [] and
                    content["layout"]["extra"]["tasks"][0]["name"] == "evaluate", "the plan file has task and window")
        self.expect(self.call("verify", plan).returncode == 0, "weft verify proves it")
        on_extra = next(op for op in content["operations"] if op["id"] == task).get("queue", 0) != 0
        self.expect(on_extra, "the task is on the queue extra")
        for column, words in ((0, "may start before its release"), (1, "may still run when its deadline")):
            row = next(row for row in content["waits"] if row[column] == task)
            kept = [other for other in content["waits"] if other != row]
            broken = self.folder / "broken.json"
            broken.write_text(re.sub(r'"waits":\[.*?\]\](?=,\n"windows"|\n\})', lambda _: '"waits":' + json.dumps(kept), text,
                                     flags=re.DOTALL))
            done = self.call("verify", broken)
            said = done.stdout + done.stderr
            self.expect(done.returncode != 0 and words in said and "evaluate" in said, f"without the wait: {words}")
        traces = [path for path in out.rglob("*.json") if path.name.startswith(("trace", "timeline"))]
        self.expect(traces and all("evaluate" in path.read_text() for path in traces), "timeline and trace show it")

    def losses(self):
        flags = [*SMALL, "--steps", "4", "--json", "--policy", "weft", "--profile", self.folder / "any_machine.json"]
        tasks = [{"name": "each", "every": "micro_batch", "seconds": 0.0002, "release": "layer 0 ffn_out forward"},
                 {"name": "weights", "norm_of": "layer 1 ffn_in", "release": "layer 0 qkv forward"},
                 {"name": "late", "seconds": 0.002, "release": "layer 0 qkv weight_grad", "deadline": "layer 1 qkv forward",
                  "deadline_step": "next"}]
        found = []
        for extra in ([], self.extra(tasks, ["weight_grads", "updates"])):
            done = self.call("run", *flags, *extra)
            if done.returncode != 0:
                return self.expect(False, f"weft run: {done.stderr[-600:]}")
            found.append(json.loads(done.stdout)["policies"]["weft"]["losses"])
        self.expect(found[0] == found[1], f"losses on two ranks do not change: {found}")
        return None

    def mistakes(self):
        for tasks, words in (
                ([{"name": "a", "seconds": 1, "release": "layer 77 qkv forward"}], "has no operation 'layer 77 qkv forward'"),
                ([{"name": "a"}], "needs either a key 'seconds'"),
                ([{"name": "a", "seconds": -1}], "key 'seconds'"),
                ([{"name": "a", "seconds": 1, "stage": 9}], "stage 9 is not in 0..3"),
                ([{"name": "a", "seconds": 1, "rank": 3}], "rank"),
                ([{"name": "a", "seconds": 1}, {"name": "a", "seconds": 1}], "no other task has")):
            done = self.call("plan", *STAGES, *self.extra(tasks))
            self.expect(done.returncode == 2 and words in done.stderr, f"refused: {words}: {done.stderr.strip()[:160]}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        test = Test(sys.argv[1], Path(folder))
        test.predicted_steps()
        test.weight_grads_wait()
        test.proof()
        test.losses()
        test.mistakes()
    sys.exit(1 if test.failures else 0)


if __name__ == "__main__":
    main()
