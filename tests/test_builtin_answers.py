#!/usr/bin/env python3
"""The built-in model's held-out questions, by quern itself: 90 of 100 right, and no answer that goes in circles.

    test_builtin_answers.py QUERN BUILTIN    BUILTIN: the folder models/builtin
"""

import os
import subprocess
import sys
import tempfile


def main():
    quern, folder = os.path.abspath(sys.argv[1]), sys.argv[2]

    def script(*words):
        return subprocess.run([sys.executable, *words], cwd=folder, check=False).returncode

    if subprocess.run([quern, "inspect", "built-in"], capture_output=True, check=False).returncode == 2:
        print("skipped: this build has no built-in model")
        return 77  # what meson takes for skipped
    with tempfile.TemporaryDirectory() as work:
        prompts, answers, sampled = (os.path.join(work, name) for name in ("prompts", "answers", "sampled"))
        some = os.path.join(work, "some")
        failed = (
            script("check.py", "prompts", "--seed", "1", "--n", "100", "-o", prompts)
            or script("answer.py", "--quern", quern, "--prompts", prompts, "-o", answers)
            or script("check.py", "judge", "--prompts", prompts, "--answers", answers)
            or script("check.py", "prompts", "--seed", "3", "--n", "50", "-o", some)
            or script("answer.py", "--quern", quern, "--prompts", some, "-o", sampled, "--sampled")
            or script("check.py", "loops", "--answers", sampled)
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
