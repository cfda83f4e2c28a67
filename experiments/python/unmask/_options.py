"""Made by `make reference` from the program's tables: the options of each command as (name, what stands for
its value or None for a flag, what it means)."""

_G0 = (
    ("system", "NAME", "a configuration of policies (list systems; default: dllm-serve, sdar or vllm-ar, as the model asks)"),
)
_G1 = (
    ("model", "NAME", "the model (list models), an INI file or a Hugging Face folder; default: that of --weights, or the system's own"),
    ("gpu", "NAME", "the GPU (list gpus) or an INI file (default: l40s; of a live run this machine's)"),
    ("systems-file", "FILE", "systems of your own, in addition to the shipped ones"),
    ("profile", "FILE", "price by this profile, measured on the GPU that --gpu names; default: the GPU's of the model, else its own for all (list profiles)"),
    ("roofline", None, "price by the data sheet, not by the GPU's profile"),
    ("price-source", "SOURCE", "source of prices: measured by unmask, imported from others, or one: a source that all systems compared have (default: the best of each)"),
)
_G2 = (
    ("set", "KEY=VALUE", "set a key of the system, model.KEY of the model or workload.KEY of the workload"),
    ("scheduler", "NAME", "short for --set scheduler=NAME; with a slash a plug-in's file"),
    ("cache", "NAME", "the same for the cache policy"),
    ("decoder", "NAME", "the same for the decoder"),
    ("router", "NAME", "the same for the router"),
    ("planner", "NAME", "the same for the memory planner"),
    ("runtime", "NAME", "the same for the runtime"),
    ("host", "NAME", "the same for the host, the machine that the GPU is in (list hosts)"),
    ("replicas", "N", "identical GPUs, each with the whole model (default: 1)"),
)
_G3 = (
    ("backend", "NAME", "what executes the batches: sim, cpu or cuda (default: sim)"),
    ("weights", "FOLDER", "a checkpoint for cpu and cuda, or random:SEED (default: random:1)"),
    ("eos", "IDS", "on cpu and cuda: the token ids that end a text, separated by commas, or none; default: the checkpoint's eos_token_id (random weights: none)"),
    ("library", "PATH", "the CUDA back end, libunmask_cuda.so (default: next to the program) [--backend = cuda]"),
    ("device", "N", "number of the machine's GPU, counted from 0; replicas and ranks have those from it on (default: 0) [--backend = cuda]"),
)
_G4 = (
    ("clock", "WORD", "on cpu and cuda: real, or virtual, which skips idle time (default: real)"),
)
_G5 = (
    ("tokenizer", "FOLDER", "turn texts into tokens by its tokenizer.json; default: --weights [workload.prompts = on]"),
    ("chat", "NAME", "the chat template around every prompt: none, llada, ling, chatml, dream, qwen2.5 or qa; default: none, and for generate --text that of the folder [workload.prompts = on]"),
    ("reference", "FILE", "the --outputs file of another run of the same prompts: prints the share of outputs that agree"),
)
_G6 = (
    ("workload", "NAME", "a workload (list workloads), an INI or a trace file (default: burst)"),
    ("arrivals", "PROCESS", "replace the arrival process (list arrivals)"),
    ("rate", "R", "mean requests per second; a trace is rescaled to it, draws come near it"),
    ("requests", "N", "how many requests"),
    ("seed", "N", "seed of all random streams (default: 1) [run.draws = on or sampling = on]"),
    ("input-tokens", "N", "every prompt has this length"),
    ("output-tokens", "N", "every output has this length"),
    ("columns", "time=NAME:UNIT,...", "what the columns of a trace file are called (trace convert --help)"),
    ("time-unit", "UNIT", "unit of a trace's times: s, ms, us, ns or date; default: as its format says"),
    ("hash-tokens", "N", "what a trace's hash ids stand for; default: as its rows say"),
    ("where", "NAME=VALUE,...", "which rows of a trace count; != for those that do not"),
    ("skip-failed", None, "leave out rows of a trace that failed or have no tokens"),
    ("skip-bad", None, "leave out rows of a trace that cannot be read, and say how many"),
)
_G7 = (
    ("slo-latency", "TIME", "objective for goodput, such as 30s"),
    ("slo-ttft", "TIME", "objective for the first token, which comes with the first block"),
    ("slo-tpot", "TIME", "objective for the time per output token after the first block"),
)
_G8 = (
    ("db", "FILE", "record into this SQLite database"),
    ("levels", "WORD", "what --db keeps: requests, steps or events (default: requests)"),
)
_G9 = (
    ("decode", "FILE", "take what each pass commits from this decode trace; sim only"),
    ("decode-out", "FILE", "write a decode trace (a SQLite file): what each pass committed and, on cpu and cuda, the model's outputs for each position"),
    ("outputs", "FILE", "on cpu and cuda: write the answers to prompts, as JSON lines"),
    ("timeline", "FILE", "write a timeline for ui.perfetto.dev"),
    ("bound", None, "print what no scheduler could beat, too (`unmask bound`); sim only"),
)
_G10 = (
)
_G11 = (
)
_G12 = (
)
_G13 = (
    ("systems", "A,B,...", "the systems; ratios are to the first, or to --against (default with --over: the system of `run`)"),
    ("system", "NAME", "short for --systems NAME"),
    ("over", "KEY=A,B,...", "each system with each of these values: of gpu, model or a key, such as scheduler"),
    ("against", "KEY=VALUE", "whom ratios and differences are to: of system or the key of --over (default: the first)"),
    ("seeds", "N", "run each system with N seeds, from --seed on (default: 1)"),
    ("same-requests", None, "measure by the requests that every system served"),
    ("bound", None, "compare each with what no scheduler could beat (`unmask bound`); sim only"),
)
_G14 = (
    ("j", "N", "threads (default: as many as cores)"),
)
_G15 = (
    ("systems-file", "FILE", "systems of your own, in addition to the shipped ones"),
    ("profile", "FILE", "price by this profile, measured on the sweep's one GPU; default: each GPU's (list profiles)"),
    ("price-source", "SOURCE", "source of prices: measured by unmask, imported from others, or one: a source that all points have (default: the best of each)"),
    ("host", "NAME", "the host of every system (list hosts); default: each its own"),
)
_G16 = (
    ("over", "KEY=A,B,...", "each point with each of these values too: of gpu, model, rate or a key, such as scheduler"),
    ("against", "KEY=VALUE", "whom points are compared with, such as scheduler=look-ahead: what differs in KEY alone (default: the first system)"),
    ("seeds", "N", "run every point with the seeds 1 to N (default: 1)"),
    ("bound", None, "compare each with what no scheduler could beat (`unmask bound`); sim only"),
)
_G17 = (
    ("db", "FILE", "record one run a point; points it holds already are not run again"),
    ("any-build", None, "take points that another build of this program recorded as well"),
    ("levels", "WORD", "what --db keeps: requests, steps or events (default: requests)"),
)
_G18 = (
    ("shard", "I/N", "record each N-th point, from the I-th on, for `unmask merge`"),
)
_G19 = (
    ("slo", "TERMS", "objectives, such as 'p99 latency<30s, p95 ttft<2s, goodput>99%' (below)"),
    ("systems", "A,B,...", "the systems; patterns such as '*-published' and paper:NAME stand for several (default: the one of --system, or dllm-serve)"),
    ("system", "NAME", "short for --systems NAME"),
    ("over", "KEY=A,B,...", "each system with each of these values: of gpu, model or a key, such as replicas=1,2"),
    ("seeds", "N", "search with N seeds, from --seed on (default: 1)"),
    ("within", "PERCENT", "how near the capacity is met (default: 1)"),
    ("no-curve", None, "leave out the rates around the capacity: faster, but lower rates that miss go unnoticed"),
    ("price", "GPU=PRICE,...", "dollars an hour for each GPU; without it cost is counted in GPUs"),
    ("out", "DIR", "write capacity.svg, .png, .pdf, .csv and capacity-rates.csv into this folder; with --rate fleets.svg, .png, .pdf, .csv"),
)
_G20 = (
    ("systems", "A,B,...", "the systems (default: the one of --system, or dllm-serve)"),
    ("system", "NAME", "short for --systems NAME"),
    ("no-run", None, "leave out the runs of the systems themselves"),
)
_G21 = (
    ("all", None, "every figure of experiments/study/studies"),
    ("scores", None, "every figure's comparison, but only the table of scores is printed"),
    ("out", "DIR", "where the files go; without it nothing is drawn, only printed"),
    ("gpu", "NAME,...", "these GPUs instead of the figure's"),
    ("model", "NAME,...", "these models instead of the figure's"),
    ("set", "KEY=VALUE,...", "of runs: a key of every system, instead of the figure's"),
    ("host", "NAME", "of runs: the host of every system (list hosts); default: each system's own"),
    ("seeds", "N", "of runs: N seeds, of which a query takes means and intervals (default: 1)"),
    ("j", "N", "threads (default: 2)"),
    ("width", "INCHES", "width of each figure as it is printed, where its text has 9 points (default: by its panels) [--out != none]"),
    ("font", "NAME", "default: sans-serif [--out != none]"),
    ("note", "TEXT", "below each figure (default: where its numbers come from); \"\" for none [--out != none]"),
)
_G22 = (
    ("x", "FIELD", "along the x axis; words make bars"),
    ("y", "FIELD,...", "along the y axis; several are a panel each"),
    ("each-request", None, "-x and -y are of single requests, such as prompt_tokens and latency_s"),
    ("cdf", "FIELD,...", "instead: the share of all requests that stay below each value, such as latency_s"),
    ("over-time", "FIELD,...", "instead: running, waiting, tokens_per_s; with --levels steps also batch, kv_bytes, busy"),
)
_G23 = (
    ("by", "FIELD,...", "a line for each value"),
    ("facet", "FIELD,...", "a panel for each value"),
    ("where", "CONDITION", "only these runs: SQL over the fields, such as \"rate < 1\""),
    ("against", "KEY=VALUE", "y less that of the runs with this value and the same seed, such as scheduler=look-ahead"),
    ("look", "WORD", "lines, points, steps or bars (default: lines; bars over words)"),
    ("log", "AXES", "logarithmic axes: x, y or xy"),
    ("title", "TEXT", "default: the fields; \"\" for none"),
    ("x-label", "TEXT", "below the x axis (default: the field, with its unit) [--out != none]"),
    ("y-label", "TEXT", "along the y axis (the same) [--out != none]"),
    ("name", "LINE=NAME", "what the legend calls a line, or the line alone; those that are named come first, in this order"),
    ("bound", None, "next to y what no scheduler could beat, dashed, of runs with `sweep --bound`"),
    ("note", "TEXT", "below the figure (default: where its numbers come from); \"\" for none, which prints that for a caption [--out != none]"),
    ("width", "INCHES", "width of the whole figure as it is printed, where its text has 9 points (default: by its panels) [--out != none]"),
    ("font", "NAME", "default: sans-serif [--out != none]"),
    ("out", "FILE", "the plot, as its ending says: .svg, .png, .pdf, .csv; without it a table"),
)
_G24 = (
    ("out", "FILE", "the page; replaced once it is whole"),
)
_G25 = (
    ("requests", "N", "requests in the batch, all at the same step (default: 1)"),
    ("input-tokens", "N", "tokens of each prompt (default: 512)"),
    ("output-tokens", "N", "tokens of each output (default: 256)"),
    ("step", "N", "steps each has done before this one (default: 0)"),
    ("refresh", "N", "instead: requests at their first refresh step"),
    ("reuse", "N", "and requests at their first reuse step"),
)
_G26 = (
    ("rounds", "N", "with a back end: how often the step is measured (default: 20)"),
    ("once", None, "with a back end: measure the step once, cold and without its operators: for long steps"),
    ("why", "OPERATOR", "instead of the table, each step that makes its price, with factor and source: SEGMENT/NAME, a name, a kind, or all"),
)
_G27 = (
    ("nodes", "N", "search no more nodes than this for the optimum [--planner = exact|all or --instance != none and --planner = none]"),
)
_G28 = (
    ("instance", "FILE", "plan the buffers of a CSV file (id,lower,upper,size) instead of a step"),
    ("capacity", "BYTES", "with --instance: any plan of at most this size will do"),
)
_G29 = (
    ("picture", "FILE", "draw the plan, offset over time, to FILE.svg"),
)
_G30 = (
    ("system", "NAME", "a configuration of policies (list systems; default: mosaic)"),
    ("systems", "A,B,...", "several of them in a table; ratios are over the first"),
    ("systems-file", "FILE", "systems of your own, in addition to the shipped ones"),
    ("model", "NAME", "the model (list models), an INI file or a Hugging Face folder (default: the systems' own)"),
    ("gpu", "NAME", "the GPU (list gpus) or an INI file (default: rtx3090)"),
    ("memory", "BYTES", "the device has this much, such as 24GiB (default: the GPU's own)"),
    ("prompt-share", "R", "what the prompt is of the canvas (default: 0.5)"),
    ("share-of", "WORD", "what R is a share of: canvas or output (default: canvas)"),
    ("before", "R,R,...", "canvases that ran before, as shares of this one [allocator != planned]"),
    ("steps", "N", "denoising steps that are played (default: 10, the benchmarks of Mosaic) [allocator != planned]"),
    ("batch", "N", "canvases of that length in a step (default: 1)"),
    ("masked", "R", "outputs that are still masked in the step in question, as a share (default: 1, the first step) [allocator = planned]"),
    ("multiple-of", "N", "canvases are multiples of N tokens (default: 64) [--canvas = none]"),
    ("canvas", "N", "show a canvas of N tokens instead of the longest"),
    ("breakdown", None, "what each part of the step holds, at that canvas and one beyond"),
)
_G31 = (
    ("systems", "A,B,...", "the systems (default: mosaic)"),
    ("canvases", "N,N,...", "tokens of the canvas (default: 1024,2048,... up to 32768)"),
    ("prompt-shares", "R,R,...", "what the prompt is of the canvas (default: 0.5)"),
    ("counts", "K,K,...", "in K chunks of each kind of loop, whatever the system searches for; 1 is unchunked"),
    ("rounds", "N", "with a back end: how often a step is measured (default: 3)"),
    ("csv", "FILE", "also write the rows there, with times in milliseconds"),
)
_G32 = (
    ("stream", "FILE", "the recorded requests (sim/memory/stream.h states the format)"),
    ("allocator", "NAME", "torch, torch-expandable or compile; else as recorded"),
    ("limit", "BYTES", "the most to hold of the device (24GiB); 'none'; else as recorded"),
    ("max-split", "BYTES", "blocks this large are not split; 'none'; else as recorded"),
)
_G33 = (
    ("all", None, "check: every profile"),
    ("profile", "FILE", "this profile of the GPU, not the shipped one"),
)
_G34 = (
    ("from", "GPU", "scale this GPU's profile"),
    ("to", "GPU", "for which GPU (list gpus)"),
    ("profile", "FILE", "a profile measured on --from, not the shipped one"),
    ("out", "FILE", "write the profile there (default: standard output)"),
    ("replace", None, "overwrite a profile in --out that was not transferred"),
    ("check", None, "instead: transfer between GPUs that both have profiles, and compare"),
)
_G35 = (
    ("steps", "FILE", "the steps, as replay --steps wrote them on the GPU that --gpu names"),
)
_G36 = (
    ("out", "FILE", "write the pack there (default: standard output)"),
    ("replace", None, "overwrite the profile that is there"),
)
_G37 = (
    ("gpu", "NAME", "the card, such as ./mine.ini (default: that of list gpus with the pack's title)"),
    ("replace", None, "overwrite the profile that is there"),
)
_G38 = (
    ("context", "TOKENS", "count what does not fit into this context, in addition to the usual ones"),
)
_G39 = (
    ("columns", "time=NAME:UNIT,...", "what the columns of the file are called (below)"),
    ("time-unit", "UNIT", "unit of the file's times: s, ms, us, ns or date; default: as it says"),
    ("hash-tokens", "N", "tokens that each of its hash ids stands for; default: as its rows say"),
    ("where", "NAME=VALUE,...", "which of its rows count; != for those that do not"),
    ("skip-failed", None, "leave out rows that failed or have no tokens"),
    ("skip-bad", None, "leave out rows that cannot be read, and say how many and why"),
    ("sort", None, "the file's rows need not be in order of arrival"),
    ("tokenizer", "FOLDER", "count the tokens of texts (prompts, ShareGPT) by its tokenizer.json"),
)
_G40 = (
    ("requests", "N", "how many requests (default: all, or as the workload has it)"),
    ("rate", "R", "of a workload: mean requests a second"),
    ("seed", "N", "of a workload: of all random streams (default: 1)"),
)
_G41 = (
    ("to", "FORMAT", "plain, plain-lengths, vidur or mooncake (default: plain)"),
    ("out", "FILE", "where the rows go (default: standard output)"),
    ("context", "TOKENS", "leave out rows that do not fit into this context"),
)
_G42 = (
    ("backend", "NAME", "cpu or cuda"),
    ("model", "NAME", "the model (list models), an INI file or a Hugging Face folder; default: that of --weights, or the system's own"),
    ("gpu", "NAME", "what the device is (list gpus; default: found by its name)"),
    ("out", "FILE", "the profile, such as h200/llada-8b.csv"),
    ("weights", "SOURCE", "a checkpoint's folder or random:SEED (default: random:1)"),
    ("system", "NAME", "system whose operators are measured and whose pages are counted (default: one that serves the model)"),
    ("tensor-parallel", "N", "devices of this machine that hold the model together (default: 1)"),
    ("expert-parallel", None, "they divide a mixture's experts instead of every expert's width"),
    ("set", "storage.KEY=TYPE", "measure products and attention of other types: storage.weights, storage.activations, storage.head and storage.cache (default: all as the back end computes)"),
    ("max-tokens", "N", "tokens of the largest step (default: 16384, on the CPU 1024)"),
    ("minutes", "M", "how long to measure (default: 6); less time means fewer rounds of operators, one at least, then fewer of whole steps, then fewer steps"),
    ("clocks", None, "let the card rest between measurements and hold steps, for its clock and power (where it counts its energy)"),
    ("quick", None, "few points, short measurements"),
    ("replace", None, "measure anew what FILE holds already"),
    ("shared", None, "keep it in FILE even if others computed on the device meanwhile, it was slowed or this program stopped; else it is set aside in FILE.shared"),
    ("library", "PATH", "library of the CUDA back end, libunmask_cuda.so"),
    ("device", "N", "number of the machine's GPU, counted from 0 (default: 0)"),
    ("describe", None, "instead: write what the device is as the file of a GPU, for cards that list gpus has not"),
)
_G43 = (
    ("model", "NAME", "the model (list models), an INI file or a Hugging Face folder; default: that of --weights, or the system's own"),
    ("gpu", "NAME", "the GPU (list gpus) or an INI file (default: l40s)"),
    ("systems-file", "FILE", "systems of your own, in addition to the shipped ones"),
    ("text", "TEXT", "the prompt, put into the chat template of the weights"),
    ("prompts", "FILE", "many prompts, as JSON lines (prompt or ids, id, task, answer)"),
    ("ids", "N,N,...", "the prompt's token ids"),
    ("ids-file", "FILE", "the same out of a file, separated by commas or white space"),
    ("output-tokens", "N", "how many positions to decode; default: what a line of prompts says, else 256, or as many as the context leaves"),
    ("outputs", "FILE", "write the answers as JSON lines"),
    ("temperature", "T", "draw tokens from the softmax of logits over T (short for --set sampling=on --set temperature=T); 0: take the most likely one (default: as the system says)"),
    ("top-k", "K", "draw among the K most likely tokens; 0: among all"),
    ("top-p", "P", "sample among the most likely of these until their probabilities exceed P; 1: all"),
    ("seed", "N", "seed of all random streams (default: 1)"),
    ("decode-out", "FILE", "write a decode trace (a SQLite file): the model's outputs for each position in each pass, and what the pass committed"),
)
_G44 = (
    ("db", "FILE", "the database"),
    ("run", "N", "the run's number; it must hold its steps"),
    ("against", "N", "another run of the same requests: play nothing, and print how many batches of the two are equal"),
    ("steps", "FILE", "write what was predicted and measured, one row per submission, as CSV"),
    ("operators", "K", "with cpu or cuda: measure every K-th submission operator by operator"),
    ("allow-plugin", None, "load the plug-ins that the run names, where they are those that it loaded (default: a database runs no code)"),
)
_G45 = (
    ("listen", "ADDRESS:PORT", "where (default: 127.0.0.1:8000; port 0: a free one)"),
    ("name", "NAME", "what clients call the model; default: its own name"),
    ("tokenizer", "FOLDER", "its tokenizer.json turns texts into tokens and back; default: that of --weights, else none: then prompts are token ids"),
    ("chat", "NAME", "the chat template around messages (run --help); default: the folder's"),
    ("text", "WORD", "text of a simulated reply: lorem, or echo, the prompt once more (default: lorem)"),
    ("answers", "MODEL,KEY=VALUE", "how long simulated answers are, a model of a workload's `answer`, such as lognormal,mean=200; default: as max_tokens says"),
    ("output-tokens", "N", "max_tokens of requests that do not say (default: 256)"),
    ("seed", "N", "seed of all random streams (default: 1)"),
    ("clock", "WORD", "clock of a simulation: real, or virtual, which stands until every client has said what it does next (default: real)"),
    ("speed", "X", "speed of the real clock: X seconds of the run in one, or max, as fast as it can (default: 1)"),
    ("clients", "N", "connections that have sent a request before the virtual clock starts (default: 1)"),
    ("queue", "N", "requests at once, then 429 (default: the system's max_in_system)"),
    ("api-key-file", "FILE", "ask for the key in its first line; no one else may read the file"),
    ("max-body", "BYTES", "largest body of a request; others get 413 (default: 1048576)"),
    ("max-header", "BYTES", "largest header of a request; others get 431 (default: 32768)"),
    ("connections", "N", "at once (default: 1024)"),
    ("request-timeout", "TIME", "in which a request has to be there whole, or a part of a reply be taken (default: 30s)"),
    ("drain", "TIME", "in which requests may end once the server is asked to (default: 30s)"),
)
_G46 = (
    ("measured", "FILE", "the requests and when the server answered them: a record of `serve --db`, a CSV, or what GuideLLM, AIPerf, vLLM or SGLang wrote"),
    ("client", "FILE", "what a client of the same traffic wrote, as a column besides"),
    ("log", "FILE", "what vLLM or SGLang logged when it started: its arguments, as far as they are not given"),
    ("anyway", None, "print errors though the log says that weights, types or speculation differ [--log != none]"),
    ("shared", None, "take a record that is marked: its times are not the device's own"),
    ("max-num-seqs", "N", "vLLM's own: requests at once (max_requests); default: the system's"),
    ("max-num-batched-tokens", "N", "vLLM's own: tokens of a step (max_batched_tokens); default: the system's"),
    ("num-gpu-blocks", "N", "what vLLM logs at its start: pages, of which it keeps one (pool_pages); default: what memory leaves"),
    ("gpu-memory-utilization", "X", "vLLM's own: share of the memory (memory_utilization); default: the system's"),
    ("block-size", "N", "vLLM's own: tokens of a page (page_tokens); default: the system's"),
)
_G47 = (
)
_G48 = (
    ("out", "FILE", "of `fit shapes`, `fit edits` and `fit decode`: write what was fitted there"),
    ("from", "TRACE", "of `fit decode`: fit a process to half of this decode trace's requests"),
    ("judge", "TRACE", "the same, and judge it by half of this one's requests too"),
    ("process", "NAME", "judge this process by the traces of --judge instead of fitting one"),
    ("name", "NAME", "what --out calls that process (default: MODEL/measured)"),
)
_G49 = (
    ("file", "FILE", "the rankings to try; default: experiments/study/sensitivity.ini"),
)
_G50 = (
    ("run", "N", "this run alone (default: all of the database)"),
)

OPTIONS = {
    "run": _G0 + _G1 + _G2 + _G3 + _G4 + _G5 + _G6 + _G7 + _G8 + _G9 + _G10 + _G11 + _G12,
    "compare": _G13 + _G1 + _G2 + _G3 + _G4 + _G5 + _G6 + _G7 + _G8 + _G14 + _G10 + _G11 + _G12,
    "sweep": _G15 + _G16 + _G3 + _G4 + _G5 + _G7 + _G17 + _G18 + _G14 + _G10 + _G11 + _G12,
    "capacity": _G19 + _G1 + _G2 + _G6 + _G14 + _G10 + _G11 + _G12,
    "bound": _G20 + _G1 + _G2 + _G6 + _G7 + _G14 + _G10 + _G11 + _G12,
    "figure": _G21,
    "plot": _G22 + _G23 + _G10 + _G11 + _G12,
    "report": _G24,
    "explain": _G0 + _G1 + _G2 + _G25 + _G3 + _G26 + _G10 + _G11 + _G12,
    "plan": _G0 + _G1 + _G2 + _G25 + _G27 + _G28 + _G29 + _G10 + _G11 + _G12,
    "plan lmax": _G30 + _G2 + _G10 + _G11 + _G12,
    "plan latency": _G31 + _G1 + _G2 + _G3 + _G10 + _G11 + _G12,
    "plan allocator": _G32 + _G10 + _G11,
    "profile": _G33 + _G10 + _G11,
    "profile transfer": _G34 + _G10 + _G11,
    "profile accuracy": _G35 + _G0 + _G1 + _G2 + _G10 + _G11 + _G12,
    "profile pack": _G36,
    "profile add": _G37 + _G10,
    "trace info": _G38 + _G39 + _G40 + _G10 + _G11,
    "trace convert": _G41 + _G39 + _G40,
    "list": _G10 + _G11,
    "calibrate": _G42 + _G10 + _G11,
    "generate": _G0 + _G2 + _G3 + _G5 + _G43 + _G10 + _G12,
    "replay": _G44 + _G3 + _G10 + _G11 + _G12,
    "serve": _G45 + _G0 + _G1 + _G2 + _G3 + _G7 + _G8 + _G10 + _G11 + _G12,
    "validate": _G46 + _G0 + _G1 + _G2 + _G10 + _G11 + _G12,
    "server": _G46 + _G0 + _G1 + _G2 + _G10 + _G11 + _G12,
    "check-plugin": _G47,
    "fit": _G48 + _G10 + _G11,
    "sensitivity": _G49 + _G14 + _G10 + _G11,
    "merge": _G10,
    "cite": _G50 + _G10 + _G11,
}
