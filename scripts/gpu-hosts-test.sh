#!/usr/bin/env bash
# Ranks on GPUs of several hosts, on one GPU: scripts/gpu-hosts-test.sh [BINARY] [DEVICE]. Two processes with torchrun's
# variables stand for two hosts, since NCCL takes NCCL_HOSTID as a host's name. Each layout's losses are compared with those
# of one rank, and in deterministic mode bit for bit; then a rank is killed, and one is stopped. DEVICE cpu goes the same way
# without NCCL. Ends with 77, and says why, where it cannot run.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$(realpath "${1:-build/bin/orthant}")
device=${2:-cuda}
test=hosts
[ "$device" = cpu ] || test=gpu-hosts
skip() {
  echo "$test: skipped: $*"
  exit 77
}
[ -x "$binary" ] || skip "there is no $binary; run scripts/build.sh"
if [ "$device" = cuda ]; then
  ! "$binary" doctor --json | tr -d ' \n' | grep -qF '"gpus":[]' || skip "no GPU is here that $binary can use"
fi

work=$(mktemp -d)
pids=()
clean() {
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean EXIT
cd "$work"
fail() {
  echo "$test: $*"
  exit 1
}
# Both hosts are this one, so NCCL finds itself on lo. OpenMP threads that spin would take the other host's cores.
export NCCL_NVLS_ENABLE=0 NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo OMP_WAIT_POLICY=passive

steps=10 deadline_s=10
cat >run.toml <<END
[model]
family = "llama"
layers = 4
hidden = 64
heads = 8
kv_heads = 4
ffn = 176
vocab = 256
max_positions = 64
[layout]
deadline_s = $deadline_s
micro_batch = 2
[train]
steps = $steps
global_batch = 8
seq_length = 32
[optimizer]
lr = 0.005
warmup_steps = 2
[precision]
compute = "fp32"
[data]
train = ["corpus"]
[checkpoint]
dir = ""
[device]
kind = "$device"
END
head -c 20000 /dev/urandom | base64 >text
"$binary" data pack text --tokenizer bytes --output corpus >/dev/null

# Waits until a process ends; $status is how, and "late" when it had to be killed.
wait_for() { # PID SECONDS
  local looks=$(($2 * 10))
  while kill -0 "$1" 2>/dev/null && [ $((looks--)) -gt 0 ]; do sleep 0.1; done
  if kill -KILL "$1" 2>/dev/null; then
    status=late
  else
    status=0
    wait "$1" || status=$?
  fi
  for i in "${!pids[@]}"; do [ "${pids[i]}" != "$1" ] || unset "pids[i]"; done
}
# A port that nobody listens at.
free_port() {
  local port=$((20000 + RANDOM % 10000))
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  echo "$port"
}
# Starts rank 0 on host a and rank 1 on host b: processes $first and $second, which write NAME.0 and NAME.1.
start_hosts() { # NAME OPTION...
  local name=$1 port rank before hosts=(a b)
  shift
  port=$(free_port)
  for rank in 0 1; do
    env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" \
      NCCL_HOSTID="${hosts[rank]}" "$binary" train run.toml --layout.ranks=2 --log.dir="$name" "$@" >"$name.$rank" 2>&1 &
    pids+=($!)
    [ $rank = 1 ] || before=$!
  done
  second=$! first=$before
}
require_well() { # PID FILE: a process that should end soon with 0 and writes that file
  wait_for "$1" 60
  [ "$status" != 2 ] || ! grep -E "need NCCL|libnccl|NCCL .* is the oldest" "$2" || skip "NCCL cannot be used"
  [ "$status" = 0 ] || { tail -n 20 "${2%.*}".[01]; fail "$2 has ended with $status"; }
}
links=
on_hosts() { # NAME OPTION...
  local started=$SECONDS
  start_hosts "$@"
  require_well "$first" "$1.0"
  require_well "$second" "$1.1"
  grep -q "ranks: 2 processes, started by torchrun, connected by sockets" "$1.0" || fail "$1: the hosts have not met by sockets"
  if [ "$device" = cuda ]; then
    links=$(grep -o "their GPUs are connected by NCCL.*" "$1.0") || fail "$1: the GPUs are not connected by NCCL"
  fi
  echo "$test: $1: trained on two hosts in $((SECONDS - started)) s${links:+, $links}"
}
here() { # NAME OPTION...: without a launcher; NAME.0 is what it writes
  "$binary" train run.toml --log.dir="$1" "${@:2}" >"$1.0" 2>&1 &
  pids+=($!)
  require_well $! "$1.0"
}
# The mean relative difference of the losses of two trainings is at most 1e-4.
compare() { # NAME NAME
  paste <(losses "$1") <(losses "$2") | awk -v steps=$steps '
    NF == 2 { sum += ($1 > $2 ? $1 - $2 : $2 - $1) / $1; ++count }
    END { mean = count > 0 ? sum / count : 1
          printf "mean relative difference %.2e over %d steps\n", mean, count
          exit !(count == steps && mean <= 1e-4) }' >difference || fail "$2 against $1: $(cat difference)"
  echo "$test: $2 against $1: $(cat difference)"
}
losses() { sed -n 's/.*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
same_bits() { # NAME NAME
  [ "$(losses "$1" | wc -l)" = $steps ] || fail "$1 has not made $steps steps"
  diff <(losses "$1") <(losses "$2") || fail "losses of $1 and $2 differ"
  echo "$test: $2 has the bits of $1"
}

here one
on_hosts zero-1 --layout.zero_stage=1
on_hosts zero-3 --layout.zero_stage=3
on_hosts tp --layout.tp=2
on_hosts tp-halves --layout.tp=2 --layout.sequence_parallel=true --layout.tp_overlap=halves
on_hosts pp --layout.pp=2
for layout in zero-1 zero-3 tp tp-halves pp; do compare one $layout; done

# One GPU's ranks without a launcher are threads.
exact=--train.deterministic=true
here one-exact $exact
here zero-3-here-exact $exact --layout.ranks=2 --layout.zero_stage=3
here tp-here-exact $exact --layout.ranks=2 --layout.tp=2
on_hosts zero-3-exact $exact --layout.zero_stage=3
on_hosts tp-exact $exact --layout.tp=2
on_hosts pp-exact $exact --layout.pp=2
same_bits zero-3-here-exact zero-3-exact
same_bits tp-here-exact tp-exact
same_bits one-exact pp-exact

# An endless training, of which rank 1 gets a signal: rank 0 says so in time and ends with 4, and GPUs are as they were.
lose() { # SIGNAL PATTERN
  local signal=$1 started took
  start_hosts "$signal" --layout.tp=2 --train.steps=1000000
  for ((looks = 600; looks > 0; --looks)); do
    [ "$(losses "$signal" 2>/dev/null | wc -l)" -lt 5 ] || break
    kill -0 "$first" 2>/dev/null || break
    sleep 0.1
  done
  [ "$(losses "$signal" 2>/dev/null | wc -l)" -ge 5 ] || { tail -n 20 "$signal".*; fail "$signal: no step was made"; }
  kill -"$signal" "$second"
  started=$SECONDS
  wait_for "$first" $((deadline_s + 40)) 2>/dev/null  # where bash says that it was killed
  took=$((SECONDS - started))
  [ "$status" = 4 ] || { tail -n 20 "$signal.0"; fail "$signal: rank 0 has ended with $status, not with 4"; }
  grep -E "^orthant: .*$2" "$signal.0" >said || { tail -n 20 "$signal.0"; fail "$signal: rank 0 does not say '$2'"; }
  echo "$test: $signal of rank 1: rank 0 has ended after $took s: $(cat said)"
  [ $took -le $((deadline_s + 20)) ] || fail "$signal: that is more than 20 s after the deadline of $deadline_s s"
  { kill -KILL "$second"; wait "$second"; } 2>/dev/null || true
  on_hosts "after-$signal" --layout.tp=2
  compare one "after-$signal"
}
lose KILL "rank 1 "
lose STOP "rank 0 .* waited $deadline_s s .*; rank 1 "
echo "$test: all is well after $SECONDS s"
