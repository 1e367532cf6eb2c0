#!/bin/bash
# Runs llm. Slurm may run this again: after a preemption, a lost node, or the time limit.
#SBATCH --job-name=llm
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --gpus-per-node=4
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120

# Trials save their checkpoints, and the session ends.
pause() {
  asked=yes next=$1
  python -P -m tuning pause /sweeps/llm || kill -TERM $job
}
trap 'pause' TERM                # preemption
trap 'pause requeue' USR1        # the time limit is near
trap 'pause cancel' USR2         # tune cancel

export PATH=/bin:$PATH
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
for try in 1 2 3; do
  srun ray symmetric-run --address "$head:6379" --min-nodes 4 \
    --num-cpus 16 --num-gpus 4 --disable-usage-stats -- \
    python -m tuning run llm.yaml --or-resume --address "$head:6379" &
  job=$!
  while wait $job; kill -0 $job 2>/dev/null; do :; done  # a signal ends a wait
  wait $job
  code=$?
  if [ $code != 4 ] || [ -n "$asked" ]; then break; fi  # else Ray did not start
done
trap '' TERM
if [ "$next" = requeue ] && [ $code != 0 ]; then scontrol requeue $SLURM_JOB_ID; fi
if [ "$next" = cancel ]; then scancel $SLURM_JOB_ID; fi
exit $code
