#!/usr/bin/env python3
"""Fourteen questions that somebody new has, each answered by commands of README and docs alone: `make journeys`.

Each is a script of the commands that such a person types, in a folder of links to the source tree (the first, a clone,
in one of its own). A command that fails, an answer that lacks what is expected, or a journey that takes more than its
seconds of processor time fails. Prints a table: commands, pages that have them, seconds of processor and of the clock.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "docs"))
import check  # noqa: E402, reads the folder of the build from the command line, too

U = "build/unmask"
SWEEP = """cat >{name}.ini <<'END'
[sweep]
{keys}
END
"""


def sweep(name, **keys):
    return SWEEP.format(name=name, keys="\n".join(f"{key.replace('__', '.')} = {value}" for key, value in keys.items()))


def tutorial():
    """Every command of the page; others may compute meanwhile, so that `calibrate` keeps what it measured."""
    commands = [command for _, command, is_inline in check.found_in("docs/tutorial.md") if not is_inline]
    return "\n".join(re.sub(r"\bcalibrate\b", "calibrate --shared", command) for command in commands)


# Number, question, pages, script, what the answer holds, most seconds of processor time (three times what two cores take).
JOURNEYS = [
    (1, "Does it run here, and what can it say?", "README.md",
     f"""git clone -q {check.ROOT} clone
cd clone && make demo OUT=out
cd clone && {U} compare --gpu l40s --workload burst --rate 0.3 --systems fast-dllm,sparse-dllm,dllm-serve
cd clone && {U} capacity --gpu l40s --systems fast-dllm,dllm-serve --slo 'p99 latency<60s'
cd clone && {U} bound --gpu l40s --workload burst
cd clone && {U} explain --gpu l40s --system dllm-serve --refresh 4 --reuse 60
cd clone && {U} figure dllm-serve-table4 --out out""",
     [r"dllm-serve-published .*-", r"\n7 cautions: saturated", r"nearest released: dllm-serve-published",
      r"17 of 23 rows within 15 %", r"wrote out/dllm-serve-table4\.svg"], 400),
    (2, "How do I learn it? Every command of the tutorial", "docs/tutorial.md", tutorial(),
     [r"\nmakespan .* s +[+-][\d.]+ %", r"right of|are right|right \(", r"every promise kept", r"wrote report.html"], 90),
    (3, "Is my scheduler better than theirs, and at which load?", "docs/own.md docs/paper.md docs/python.md",
     "cp tests/plugins/template_scheduler.c mine.c\n"
     "cc -shared -fPIC -I. -std=c11 -o mine.so mine.c\n"
     f"{U} check-plugin ./mine.so\n" +
     sweep("mine", systems="dllm-serve", gpus="l40s", workloads="math", rates="0.1, 0.2", requests=500,
           set__max_requests=8, set__scheduler="phase-multiplexed, ./mine.so") +
     f"""{U} sweep mine.ini --seeds 5 --db mine.db --against scheduler=phase-multiplexed
{U} plot mine.db -x rate -y latency_s.p99 --against scheduler=phase-multiplexed --out gain.pdf
cp tests/plugins/template_cache.c cache.c
cc -shared -fPIC -I. -std=c11 -o cache.so cache.c
{U} check-plugin ./cache.so
{U} compare --gpu l40s --rate 0.3 --requests 300 --system dllm-serve --over cache=sparse-head,./cache.so --seeds 3
cat >mine.py <<'END'
import unmask
class Shortest(unmask.Scheduler):
    def schedule(self, view, batch):
        for request in view.running:
            batch.run(request)
        for request in sorted(view.waiting, key=lambda r: r.output_tokens):
            if not batch.admit(request):
                break
print("python", unmask.run(gpu="l40s", workload="math", rate=0.2, requests=200, scheduler=Shortest())["latency_s"]["mean"])
END
PYTHONPATH=experiments/python python3 mine.py""",
     [r"every promise kept(.|\n)*every promise kept", r"paired differences to phase-multiplexed",
      r"shortest-first .*-\d+\.?\d* +\(-", r"wrote gain\.pdf", r"python \d"], 30),
    (4, "What happens with my own traffic?", "docs/traces.md",
     r"""printf 'timestamp,prompt_tokens,completion_tokens,status\n0.5,800,200,200\n1.0,,,500\n1.5,100,50,200\n' >log.csv
""" + f"""! {U} trace info log.csv
{U} trace info log.csv --time-unit s --where status=200
{U} run --gpu h100 --workload log.csv --time-unit s --where status=200
{U} trace convert gateway.jsonl --columns time=ts:date,input=usage.prompt_tokens,output=usage.completion_tokens --out g.csv
{U} run --gpu h100 --workload g.csv
{U} run --gpu l40s --workload burst --arrivals ramp --rate 0.6 --requests 400""",
     [r"--time-unit s, ms", r"2 requests in 1 s", r"2 completed of 2", r"1 completed of 1", r"400 completed of 400"], 3),
    (5, "What about my own model and card?", "docs/own.md",
     """cat >config.json <<'END'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728,
 "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
 "max_position_embeddings": 40960, "tie_word_embeddings": true}
END
sed /max_position/d config.json >short.json; sed -i '$ s/$/ "rope_theta": 1e6}/' short.json
""" + f"""! {U} run --model short.json --gpu h100
{U} run --model config.json --gpu h100 --system vllm-ar --requests 200
printf '[gpu]\\ntitle = mine\\nmemory = 96GiB\\n' >bare.ini
! {U} run --gpu ./bare.ini
{U} run --gpu ./mycard.ini --system dllm-serve --requests 50
{U} run --gpu mi300x --system dllm-serve --requests 50""",
     [r"short\.json", r"200 completed of 200", r"bare\.ini: .*(sms|bandwidth)", r"assumed: best_bf16_flops"], 3),
    (6, "How many GPUs for 50 requests/s, p95 TTFT below 2 s?", "docs/howto.md",
     f"{U} capacity --rate 50 --slo 'p95 ttft<2s' --gpu l40s --over tensor_parallel=1,2 --price l40s=0.9",
     [r"dllm-serve +1 .*design +\d\d ", r"dllm-serve-published +1 .*published +1\d\d ", r"\$/h", r"one fewer misses"], 60),
    (7, "A paper's table with one thing changed?", "docs/tutorial.md docs/papers/README.md",
     f"{U} figure dllm-serve-table4 --set block_tokens=64 --out out\n! {U} figure dllm-serve-table4 --set block_token=64",
     [r"ours unchanged +ours changed +changed/unchanged +printed", r"did you mean 'block_tokens'",
      r"wrote out/dllm-serve-table4\.svg"], 5),
    (8, "My own figure, for a column of a paper?", "docs/howto.md docs/paper.md",
     sweep("grid", systems="dllm-serve, sparse-dllm", gpus="l40s", workloads="burst, osc", rates="0.2, 0.4, 0.6",
           requests=300) +
     f"""{U} sweep grid.ini --seeds 3 --db grid.db --levels steps --format latex >table.tex
grep toprule table.tex
{U} plot grid.db
{U} plot grid.db -x rate -y latency_s.p99 --by system --facet workload --out p99.svg
{U} plot grid.db -x rate -y latency_s.p99 --by system --where "workload = 'osc'" --width 3.3 --name dllm-serve=Ours --out p99.pdf
{U} plot grid.db --cdf latency_s --by system --facet workload --where 'rate = 0.6' --out cdf.png
! {U} plot grid.db -x rate -y p99
{U} cite grid.db""",
     [r"toprule", r"wrote p99\.svg", r"wrote p99\.pdf", r"wrote cdf\.png", r"did you mean 'latency_s\.p99'", r"Methodology"],
     12),
    (9, "All my runs on one page?", "docs/howto.md",
     sweep("few", systems="dllm-serve, sparse-dllm", gpus="l40s", rates="0.2, 0.4", requests=300) +
     f"{U} sweep few.ini --seeds 3 --db few.db\n{U} report few.db --out few.html\ngrep -c '<html' few.html\n! grep 'src=.http' few.html",
     [r"wrote few\.html", r"\n1\n"], 4),
    (10, "From Python, in an environment of its own?", "docs/python.md",
     f"""make -s -C {check.ROOT} wheel BUILD={check.BUILD} GLIBC=host
python3 -m venv venv
venv/bin/pip install -q "$(ls {check.BUILD}/wheel/*.whl | tail -1)[plot]"
cp experiments/python/tutorial.py notebook.py
venv/bin/python notebook.py""",
     [r"capacity_req_s\.mean", r"p50 +\d", r"shortest first"], 60),
    (11, "How do I install it?", "docs/install.md",
     f"""make -s -C {check.ROOT} install BUILD={check.BUILD} PREFIX=$PWD/usr
mv usr moved
moved/bin/unmask --version
moved/bin/unmask run --requests 20
cc -shared -fPIC -I moved/include/unmask -std=c11 -o r.so moved/share/doc/unmask/examples/template_router.c
moved/bin/unmask run --router ./r.so --replicas 4 --requests 100 --rate 2
make -s -C {check.ROOT} deb BUILD={check.BUILD}
zcat moved/share/man/man1/unmask-run.1.gz | head -3
bash -c '. moved/share/bash-completion/completions/unmask && complete -p unmask'""",
     [r"unmask \d+\.\d+", r"data from .*/moved/", r"100 completed of 100", r"\.deb", r"\.TH", r"_unmask unmask"], 20),
    (12, "Does a real model answer like that on my CPU?", "docs/tutorial.md docs/engine.md",
     f"""{U} run --backend cpu --model llada-tiny --system dllm-serve --requests 8 --input-tokens 64 --output-tokens 64
{U} generate --backend cpu --weights experiments/train/models/sdar-2m --prompts experiments/train/prompts/easy.jsonl --output-tokens 96
{U} generate --backend cpu --weights experiments/train/models/sdar-2m --text 'Tom has 3 boxes of 12 pens.' --output-tokens 32
! {U} generate --backend cpu --weights nosuch --text hi""",
     [r"8 completed of 8", r"2\d\d of 256", r"problems like those of experiments/train/prompts alone",
      r"cannot open 'nosuch'"], 40),
    (13, "A large sweep on a cluster, a cluster simulated?", "docs/cluster.md",
     sweep("grid", systems="dllm-serve, fast-dllm", gpus="l40s", workloads="osc", requests=100, rates="0.2, 0.4") +
     f"""if [ -e build/libunmask_mpi.so ]; then mpirun --oversubscribe -n 2 {U} sweep grid.ini --db grid.db -j 1; fi
{U} sweep grid.ini --db part1.db --shard 1/2
{U} sweep grid.ini --db part2.db --shard 2/2
{U} merge all.db part1.db part2.db
{U} sweep grid.ini --db all.db
{U} run --system fast-dllm --gpu l40s --workload burst-replay --requests 20000 --rate 100 --replicas 256 --router power-of-two""",
     [r"4 runs copied into all\.db", r"4 points were in all\.db already", r"20000 completed of 20000"], 6),
    (14, "What if I interrupt it, fill the disk or slip?", "docs/sharing.md docs/reference/commands.md",
     sweep("long", systems="dllm-serve, fast-dllm, sparse-dllm", gpus="l40s", rates="0.2, 0.3, 0.4", requests=20000) +
     f"""timeout -s INT 2 {U} sweep long.ini --seeds 8 --db long.db; test $? = 124
{U} sweep long.ini --seeds 1 --db long.db
! {U} run --requests 10 --db /dev/full
! {U} rnu
! {U} run --gpuu l40s
! {U} run --system dllm-serv
! {U} run --set cach.retention=0.3
! {U} run --max-requests 8
! {U} capacity --slo 'p95 tft<2s'
! {U} figure dllm-serve-tabel4""",
     [r"points? (was|were) in long\.db already", r"did you mean 'run'", r"did you mean '--gpu'", r"did you mean 'dllm-serve'",
      r"did you mean 'cache\.retention'", r"--set max_requests=VALUE", r"did you mean 'ttft'",
      r"did you mean 'dllm-serve-table4'"], 30),
]


def n_commands(script):
    return sum(1 for _ in check.commands_of(script))


def walk(script):
    """What was said, the status of the first command that fails, seconds of the processor and of the clock."""
    with tempfile.TemporaryDirectory(prefix="journey-") as name:
        folder = pathlib.Path(name)
        check.sandbox(folder)
        mpi = check.BUILD / "libunmask_mpi.so"
        if mpi.exists():
            os.symlink(mpi, folder / "build" / mpi.name)
        own = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", CCACHE_DISABLE="1")
        for variable in ("MAKEFLAGS", "MAKELEVEL", "BUILD"):
            own.pop(variable, None)
        steps = "\n".join(f"( {command}\n) || exit 1" if not re.match(r"\w+=", command) else command
                          for _, command in check.commands_of(script))
        begin = time.monotonic()
        child = subprocess.Popen(["bash", "-c", steps], cwd=folder, env=own, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        said = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        return said, status, used.ru_utime + used.ru_stime, time.monotonic() - begin


def main():
    asked = [int(word) for word in sys.argv[2:]]
    rows, failed = [], []
    for number, question, pages, script, answers, most in JOURNEYS:
        if asked and number not in asked:
            continue
        said, status, cpu, wall = walk(script)
        why = ["a command failed"] if status != 0 else []
        why += [f"no '{answer}'" for answer in answers if not re.search(answer, said)]
        why += [f"{cpu:.0f} s of processor time, {most} at most"] if cpu > most else []
        if why:
            failed.append(number)
            print(f"journeys: {number}, {question}: {'; '.join(why)}\n{said[-3000:]}", file=sys.stderr)
        rows.append((number, question, n_commands(script), len(pages.split()), cpu, wall, "no" if why else "yes"))
        print(".", end="", file=sys.stderr, flush=True)
    print(f"\n{'':>2}  {'question':<58} {'commands':>8} {'pages':>5} {'CPU s':>6} {'s':>6}  answered")
    for number, question, commands, n_pages, cpu, wall, answered in rows:
        print(f"{number:>2}  {question:<58} {commands:>8} {n_pages:>5} {cpu:>6.1f} {wall:>6.1f}  {answered}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
