#!/usr/bin/env bash
# A Slurm array job of `quern batch` for real, on loopback: a controller and one node of this machine's own, with their
# state in a temporary folder. Four tasks compute a shard each, one of them is killed and requeued on its own, and the
# merged output must be the bytes of a run without shards.
#
#   tests/slurm/run.sh QUERN MODEL|QUERN-SYNTH     as root, with Debian's slurm-wlm and munge installed
#
# With quern-synth it makes a small model of its own. It is in meson's suite `long`.
# Exit status 77 (meson: skipped) where Slurm or root is missing.
set -euo pipefail
quern=$(realpath "$1") model=$(realpath "$2")
for program in munged slurmctld slurmd sbatch squeue; do
    command -v $program >/dev/null || { echo "skipped: no $program"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }

folder=$(mktemp -d /tmp/quern-slurm-XXXXXX)
chmod 755 "$folder"
pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap stop EXIT

cd "$folder"
mkdir state spool munge
chmod 711 munge
[[ $model = *.gguf ]] || { "$model" llama-tiny Q8_0 model.gguf; model=$folder/model.gguf; }
head -c 128 /dev/urandom >munge/key
chmod 400 munge/key
munged -F --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" >munge/out 2>&1 &
pids+=($!)

host=$(hostname -s)
cat >slurm.conf <<CONF
ClusterName=quern
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$folder/slurm.conf
slurmctld -D >ctld.out 2>&1 &
pids+=($!)
slurmd -D >slurmd.out 2>&1 &
pids+=($!)
for _ in $(seq 60); do
    [ "$(sinfo -h -o %t 2>/dev/null)" = idle ] && break
    sleep 0.5
done
[ "$(sinfo -h -o %t)" = idle ] || { echo "the node does not come up"; tail slurmctld.log slurmd.log; exit 1; }

for i in $(seq 400); do echo "{\"custom_id\":\"row $i\",\"prompt\":\"the number $i and $((i * 7919 % 1000))\",\"max_tokens\":24}"; done >in.jsonl
"$quern" batch -m "$model" in.jsonl -o whole.jsonl

cat >job.sh <<JOB
#!/usr/bin/env bash
# As docs/batch.md has it: the shard comes from the array. The first time that task 2 runs, it dies on its way.
if [ "\$SLURM_ARRAY_TASK_ID" = 2 ] && mkdir died 2>/dev/null; then
    "$quern" batch -m "$model" -t 1 in.jsonl -o 'out-{shard}.jsonl' &
    while [ ! -s out-2-of-4.jsonl ]; do sleep 0.01; done
    kill -9 \$!
    scontrol requeue \$SLURM_JOB_ID
    sleep 60
fi
exec "$quern" batch -m "$model" -t 1 in.jsonl -o 'out-{shard}.jsonl'
JOB
job=$(sbatch --parsable --requeue --array=0-3 --cpus-per-task=1 --chdir="$folder" --output="$folder/job-%a.log" --open-mode=append job.sh)
for _ in $(seq 600); do
    [ -z "$(squeue -h -j "$job" 2>/dev/null)" ] && break
    # Slurm lets what was requeued wait for two minutes
    [ -d died ] && scontrol update jobid="${job}_2" starttime=now 2>/dev/null || true
    sleep 0.5
done
tail -n 3 job-*.log
"$quern" batch merge merged.jsonl out-*-of-4.jsonl
cmp whole.jsonl merged.jsonl
[ -d died ]
echo "an array of 4 tasks, one of them killed and requeued: the same bytes as one run ($(sinfo --version))"
