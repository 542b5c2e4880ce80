"""Runs the shell blocks of a README in a directory and compares their output.

usage: readme.py README DIRECTORY

A block of JSON or text after a shell block is the output of that block; `…` in it stands for anything. A block whose
result is not there yet is repeated, as a person would, for at most PATIENCE_SECONDS. A command that keeps running, `vintem up`, is left running until the end. `cargo build` runs only if VINTEM_README_BUILDS is set, and
container commands never do. Prints failures, figures, and last how many blocks failed.
"""

import os, re, signal, subprocess, sys, time
from pathlib import Path

readme = Path(sys.argv[1])
directory = Path(sys.argv[2])
SECONDS_TO_WAIT = 120
PATIENCE_SECONDS = 60
MAX_COMMANDS = 5


def code_blocks():
    """Language, first line and text of each block."""
    language = None
    for number, line in enumerate(readme.read_text().splitlines(), 1):
        if language is None and line.startswith("```"):
            language, first_line, lines = line[3:], number, []
        elif line == "```":
            yield language, first_line, "\n".join(lines) + "\n"
            language = None
        elif language is not None:
            lines.append(line)


def commands_of(block):
    """The commands of a block, each with its continuation lines."""
    joined = re.sub(r"\\\n\s*", " ", block)
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


class Newcomer:
    """Somebody at a terminal: a directory, an environment and what runs in the background."""

    def __init__(self):
        kept = ("PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "LANG")
        self.variables = {name: os.environ[name] for name in kept if name in os.environ}
        self.background = []
        self.commands = 0
        self.started = time.monotonic()

    def run(self, block):
        """Runs the block and returns its output."""
        output = ""
        script = ""
        for command in commands_of(block):
            self.commands += 1
            if command.startswith("cargo build") and "VINTEM_README_BUILDS" not in os.environ:
                continue
            if re.match(r"(\S*/)?vintem up\b", command):
                output += self.run_script(script) + self.start(command)
                script = ""
            else:
                script += command + "\n"
        return output + self.run_script(script)

    def run_script(self, script):
        if not script:
            return ""
        names = directory / ".variables"
        command = ["bash", "-euo", "pipefail", "-c", f"{script}\nenv -0 >{names}\n"]
        seconds = None if "cargo build" in script else SECONDS_TO_WAIT
        done = subprocess.run(
            command, cwd=directory, env=self.variables, capture_output=True, text=True, timeout=seconds
        )
        assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout}{done.stderr}"
        self.variables |= dict(one.split("=", 1) for one in names.read_text().split("\0") if one)
        names.unlink()
        return done.stdout

    def start(self, command):
        """Leaves the command running and returns its output up to the line that says it is ready."""
        log = open(directory / "up.log", "w")
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command.split('#')[0]}"], cwd=directory, env=self.variables, text=True,
            stdout=subprocess.PIPE, stderr=log,
        )
        self.background.append(process)
        output = ""
        for line in process.stdout:
            output += line
            if "is ready" in line:
                return output
        raise AssertionError(f"{command} ended: {output}{(directory / 'up.log').read_text()}")

    def stop(self):
        for process in self.background:
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_TO_WAIT) == 0, "the service did not stop cleanly"


def matches(expected, actual):
    pattern = ".*?".join(map(re.escape, expected.strip().split("…")))
    return re.fullmatch(pattern, actual.strip(), re.DOTALL) is not None


def follow(newcomer, block, expected):
    """Runs a block until it gives the expected output. Returns what was wrong the first time if it never does."""
    first_problem = None
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            output = newcomer.run(block)
            assert expected is None or matches(expected, output), f"printed\n{output}"
            return None
        except AssertionError as problem:
            first_problem = first_problem or problem
        if time.monotonic() > deadline or "vintem up" in block:
            return first_problem
        time.sleep(1)


newcomer = Newcomer()
blocks = list(code_blocks())
failed = compared = 0
ready = None
for index, (language, line, text) in enumerate(blocks):
    if language != "sh" or "docker" in text:
        continue
    following = blocks[index + 1] if index + 1 < len(blocks) else ("", 0, "")
    has_answer = following[0] in ("json", "text")
    compared += has_answer
    problem = follow(newcomer, text, following[2] if has_answer else None)
    if problem:
        failed += 1
        print(f"fails: {readme.name}:{line}: {problem}")
    if newcomer.background and ready is None:
        ready = (newcomer.commands, time.monotonic() - newcomer.started)
try:
    newcomer.stop()
except AssertionError as problem:
    failed += 1
    print(f"fails: {problem}")

commands, seconds = ready or (0, 0)
if not 0 < commands <= MAX_COMMANDS:
    failed += 1
    print(f"fails: {commands} commands to a running demo")
print(f"readme: {readme.name}")
print(f"commands_to_demo: {commands}")
print(f"seconds_to_demo: {seconds:.1f}")
print(f"commands: {newcomer.commands}")
print(f"answers_compared: {compared}")
print(f"failed: {failed}")
sys.exit(1 if failed else 0)
