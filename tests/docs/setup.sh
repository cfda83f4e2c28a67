# What commands of the pages take to be there: made in the folder in which they run.
sed 's/^title = .*/title = A model of my own/' sim/model/models/llada-8b.ini >mymodel.ini
sed -e 's/^title = .*/title = A card of my own/' -e '/^profile/d' sim/model/gpus/l40s.ini >mycard.ini
printf 'ts,prompt_tokens,completion_tokens\n0.5,100,256\n0.1,300,256\n2,50,64\n' >requests.csv
cat >mystudy.ini <<'END'
[figure]
title = p99 latency over the rate
kind = lines
x_label = requests a second
y_label = seconds
query = SELECT system AS series, rate AS x, latency_s_p99 AS y FROM run

[run]
system = dllm-serve, sparse-dllm
gpu = l40s
workload = osc
requests = 40
rate = 0.2, 0.4
END
head -3 experiments/train/prompts/easy.jsonl >few.jsonl
printf '{"ts":"2026-01-02T03:04:05Z","usage":{"prompt_tokens":100,"completion_tokens":256}}\n' >gateway.jsonl
