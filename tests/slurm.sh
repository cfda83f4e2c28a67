#!/usr/bin/env bash
# slurm.sh BUILD: the steps of docs/cluster.md under a Slurm of one node, made here of Debian's packages (slurm-wlm, munge) and
# ended with the script: srun of two ranks gives table and database of one process, byte by byte, and a job array of three tasks,
# merged, the table, and the database of the same three parts without Slurm. Needs root, for slurmd; `make slurm-test` runs it, CI
# does not.
set -euo pipefail
build=$(realpath "${1:-build}")
unmask=$build/unmask
say() { echo "slurm: $*"; }
fail() { say "$*" >&2; for log in "$place"/*.log; do echo "--- $log" >&2; tail -n 8 "$log" >&2; done; exit 1; }
[ "$(id -u)" = 0 ] || { say "slurmd wants root: nothing was tried"; exit 0; }
for program in munged slurmctld slurmd sbatch srun; do
    command -v "$program" >/dev/null || { say "$program is missing (slurm-wlm, munge): nothing was tried"; exit 0; }
done
[ -e "$build/libunmask_mpi.so" ] || { say "the build has no MPI (make mpi): nothing was tried"; exit 0; }

place=$(mktemp -d)
# shellcheck disable=SC2317 # by the trap
end() {
    for name in slurmd slurmctld munged; do
        [ -s "$place/$name.pid" ] && kill "$(cat "$place/$name.pid")" 2>/dev/null || true
    done
    sleep 1
    rm -rf "$place"
}
trap end EXIT
mkdir -p "$place"/{state,spool,run}
chmod 755 "$place"

# munge's socket and key are this script's own.
dd if=/dev/urandom of="$place/munge.key" bs=1024 count=1 status=none
chmod 400 "$place/munge.key"
munged --force --socket="$place/munge.sock" --key-file="$place/munge.key" --pid-file="$place/munged.pid" \
    --log-file="$place/munged.log" --seed-file="$place/munge.seed" 2>/dev/null || fail "munged does not start"

host=$(hostname -s) cores=$(nproc) ports=$((20000 + $$ % 20000))
cat >"$place/slurm.conf" <<END
ClusterName=unmask
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=$ports
SlurmdPort=$((ports + 1))
AuthType=auth/munge
AuthInfo=socket=$place/munge.sock
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/slurmd.pid
SlurmdSpoolDir=$place/spool
StateSaveLocation=$place/state
SlurmctldLogFile=$place/slurmctld.log
SlurmdLogFile=$place/slurmd.log
JobCompType=jobcomp/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cores State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$place/slurm.conf
mpi=pmix
srun --mpi=list 2>&1 | grep -q pmix || mpi=pmi2
export SLURM_MPI_TYPE=$mpi # which a cluster's slurm.conf says
slurmctld -c || fail "slurmctld does not start"
slurmd -c || fail "slurmd does not start"
for _ in $(seq 60); do
    sinfo -h -o %T 2>/dev/null | grep -qE '^(idle|mixed)' && break
    sleep 0.5
done
sinfo -h -o %T | grep -qE '^(idle|mixed)' || fail "the node does not come up: $(sinfo -h -o '%T %E')"

cd "$place"
cat >grid.ini <<'END'
[sweep]
systems = dllm-serve, fast-dllm
gpus = l40s
workloads = osc
requests = 100
rates = 0.2, 0.4
END
"$unmask" sweep grid.ini --db one.db -j 1 >one.out 2>/dev/null
for i in 1 2 3; do "$unmask" sweep grid.ini --db "own$i.db" --shard "$i/3" -j 1 >/dev/null 2>&1; done
"$unmask" merge own.db own1.db own2.db own3.db >/dev/null 2>&1

# Ranks, as the page has it.
cat >ranks.sh <<END
#!/bin/sh
#SBATCH --ntasks=2 --cpus-per-task=1 --time=5 --output=$place/ranks.out --error=$place/ranks.log
srun --kill-on-bad-exit=1 $unmask sweep grid.ini --db ranks.db -j "\$SLURM_CPUS_PER_TASK"
END
sbatch --wait ranks.sh >/dev/null || fail "srun of two ranks failed"
cmp one.out ranks.out || fail "two ranks print something else than one process"
cmp one.db ranks.db || fail "two ranks record something else than one process"
say "srun of 2 ranks ($mpi): the table and the database of one process, byte by byte"

# A job array, as the page has it, whose parts are merged.
cat >array.sh <<END
#!/bin/sh
#SBATCH --array=1-3 --time=5 --output=$place/array-%a.out --error=$place/array-%a.log
exec $unmask sweep grid.ini --db "part\$SLURM_ARRAY_TASK_ID.db" --shard "\$SLURM_ARRAY_TASK_ID/\$SLURM_ARRAY_TASK_COUNT" -j 1
END
sbatch --wait array.sh >/dev/null || fail "a task of the job array failed"
"$unmask" merge all.db part1.db part2.db part3.db >/dev/null 2>&1 || fail "the parts do not merge"
"$unmask" sweep grid.ini --db all.db -j 1 >all.out 2>all.err
cmp one.out all.out || fail "the merged parts print something else than one process"
grep -q '4 points were in all.db already' all.err || fail "the merged database lacks points: $(cat all.err)"
cmp own.db all.db || fail "the merged database is not that of the same parts without Slurm"
say "a job array of 3, merged: the table of one process, and the database of the same parts without Slurm, byte by byte"
