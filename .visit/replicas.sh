#!/bin/bash
out=$1; mkdir -p $out; export UNMASK_DATA=$PWD OPENBLAS_NUM_THREADS=4
libs=$(python3 -c 'import glob, os, torch
print(":".join(glob.glob(os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/*/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
lib=$PWD/build/kernels/libunmask_cuda.so U=build/portable/unmask
t0=$(date +%s); since() { echo $(($(date +%s) - t0)); }
nvidia-smi --query-gpu=name,clocks.max.sm,memory.used --format=csv,noheader
# the same tokens on whichever replica
for s in dllm-serve focus; do m=llada-tiny; [ $s = focus ] && m=sdar-tiny
for r in 1 2; do timeout 60 $U generate --backend cuda --library $lib --gpu h200 --weights random:3 --model $m --system $s --prompts .visit/p.jsonl --output-tokens 64 --outputs $out/$s-$r.jsonl --set replicas=$r --set runtime.batch_invariant=on --set memory_utilization=0.2 >$out/$s-$r.txt 2>&1 || tail -2 $out/$s-$r.txt; done
python3 - $out/$s-1.jsonl $out/$s-2.jsonl <<'P'
import json,sys
a,b=[[json.loads(l) for l in open(f)] for f in sys.argv[1:]]
k=[k for k in a[0] if 'token' in k or k=='ids' or k=='output']
print(sys.argv[1].split('/')[-1], len(a), 'outputs, equal:', sum(json.dumps(x)==json.dumps(y) for x,y in zip(a,b)), k)
P
done
$U run --backend cuda --library $lib --gpu h200 --model llada-tiny --weights random:3 --set replicas=4 --set memory_utilization=0.2 --requests 4 2>&1 | tail -2
echo "tokens after $(since) s"
bash experiments/gpu/fidelity.sh build $out kernels/profiles/h200/llada-8b.csv h200 dllm-serve fast-dllm dllm-serve:replicas=2 fast-dllm:replicas=2 2>&1 | grep -E "error|left out|unmask"
echo "fidelity after $(since) s"
for f in $out/*sim.json $out/*live.json; do python3 -c "
import json,sys
d=json.load(open('$f')); print('$f'.split('/')[-1], d['makespan_s'], d['latency_s']['mean'], [w['code'] for w in d['warnings']])"; done
